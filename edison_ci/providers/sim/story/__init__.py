"""How does the simulator write very short stories, and how does it see a good one?"""
