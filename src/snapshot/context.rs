//! What a host keeps with its calls.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Something of the host's that was given with a call ([`with_context`](crate::engine::with_context)),
/// a stack in a form of its own for instance. The engine keeps it with blocks and events, looks at
/// nothing in it, and gives it back in snapshots; files leave it out.
///
/// The last that holds it drops it, which may be the engine with its locks held: what is dropped must
/// not call the engine.
#[derive(Clone)]
pub struct HostContext(Arc<dyn Any + Send + Sync>);

impl HostContext {
    /// Keeps a value of the host's.
    pub fn new(context: impl Any + Send + Sync) -> Self {
        Self(Arc::new(context))
    }

    /// The value, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for HostContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostContext")
    }
}

/// Contexts are equal if they are the very same.
impl PartialEq for HostContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HostContext {}
