"""What do the numbers of a run decide?"""
