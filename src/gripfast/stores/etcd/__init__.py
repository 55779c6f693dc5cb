"""Locks in etcd."""
