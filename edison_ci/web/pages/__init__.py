"""The pages: each is a function from a look at the results to what a template shows."""
