"""Steps of a judge, one module each; `all_steps` finds them."""
