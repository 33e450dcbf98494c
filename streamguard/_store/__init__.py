"""Databases: one place for records of dispatches and for the journal. Needs SQLAlchemy: the extra `dispatch`."""
