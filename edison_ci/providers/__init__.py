"""Who answers a call: adapters to models, real and simulated."""
