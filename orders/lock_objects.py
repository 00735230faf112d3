"""Every row lock of orders, and their order."""
