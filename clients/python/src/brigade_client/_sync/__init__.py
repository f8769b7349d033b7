# Generated from _async/__init__.py by `node clients/generate.js`. Do not edit.
"""The client and its handles, once with coroutines and once without."""
