//! The distributed lock manager: namespaces, policies, callbacks as actions.
