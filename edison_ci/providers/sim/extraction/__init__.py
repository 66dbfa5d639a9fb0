"""How does the simulator read invoices, and how does it see a good reading?"""
