"""Attacks, each tried as an attacker would, with a control in which its guard is off.

Attacks that the tests of a module already show are not repeated: ``docs/security.md`` names them.
"""
