"""The face of the shop: its name, logo, colour, contact, imprint and terms, from the settings."""
