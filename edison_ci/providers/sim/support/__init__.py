"""How does the simulator answer customers, and how does it see a good answer?"""
