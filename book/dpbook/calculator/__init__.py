"""The page with the calculator: how its times compare with published ones."""
