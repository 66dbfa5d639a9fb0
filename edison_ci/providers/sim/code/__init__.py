"""How does the simulator write a Python function, and how does it see a good one?"""
