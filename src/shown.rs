//! `Debug` of types that show a few of their parts.

/// Implements `Debug` for a type, with its generics first and then what is shown of it, each part by a name.
macro_rules! shown {
    ([$($generics:tt)*] $type:ident $(<$($parameter:tt),*>)?: |$it:ident| $($name:ident = $value:expr),*) => {
        impl<$($generics)*> std::fmt::Debug for $type $(<$($parameter),*>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($name), &$value);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use shown;
