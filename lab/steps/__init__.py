"""The steps by name: what each one is, and how a race opens a sale of it and buys."""
