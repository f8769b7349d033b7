"""The client and its handles, once with coroutines and once without."""
