"""How can the whole tool be tried offline, with models that are pretended and say so?"""
