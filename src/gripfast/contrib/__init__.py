"""Gripfast in the manner of other frameworks: one module or package each, imported only by those who use the framework.

A module here calls the public API of Gripfast and that of its framework, and has no lock logic of its own.
"""
