"""What runs in an environment, which has not this package: modules that stand alone. Python 3.9 syntax."""
