"""What would a run do, and what would it cost?"""
