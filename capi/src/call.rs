//! What the bodies of calls have in common. Their signatures stand in full beside their documentation, since the
//! header is generated from them.

/// The body of a call that can fail. In it an operation needs no `unsafe` of its own.
macro_rules! fallible {
    ($body:expr) => {
        // SAFETY: the contract of all calls.
        unsafe { $crate::failure::guard(|| $body) }
    };
}

/// A call on an engine of either kind: `call!(engine, done)`. The pointer `engine` is read first, and `done` is
/// evaluated with that name for what it points to.
///
/// `call!(engine, place = value)` writes a value to a place that must not be null, which is checked before `value` is
/// evaluated; `call!(engine, Some(place) = value)` to one that may be null.
macro_rules! call {
    ($engine:ident, Some($place:ident) = $value:expr) => {
        fallible!({
            let $engine = $crate::engine::regraph_engine::read($engine)?;
            let value = on!($engine, $engine => $value);
            $crate::arguments::put_if_wanted($place, value);
            Ok(())
        })
    };
    ($engine:ident, $place:ident = $value:expr) => {
        fallible!({
            let $engine = $crate::engine::regraph_engine::read($engine)?;
            let place = $crate::arguments::Out::needed($place, stringify!($place))?;
            place.put(on!($engine, $engine => $value));
            Ok(())
        })
    };
    ($engine:ident, $done:expr) => {
        fallible!({
            let $engine = $crate::engine::regraph_engine::read($engine)?;
            on!($engine, $engine => $done);
            Ok(())
        })
    };
}

/// A call on the driver of a simulated engine, in the forms of `call!`.
macro_rules! simulate {
    ($engine:ident as $driver:ident, $place:ident = $value:expr) => {
        fallible!({
            let $driver = $crate::engine::regraph_engine::simulated($engine)?;
            let place = $crate::arguments::Out::needed($place, stringify!($place))?;
            place.put($value);
            Ok(())
        })
    };
    ($engine:ident as $driver:ident, $done:expr) => {
        fallible!({
            let $driver = $crate::engine::regraph_engine::simulated($engine)?;
            $done;
            Ok(())
        })
    };
}

/// Destroys what a call gave; does nothing for null.
macro_rules! destroy {
    ($given:ident) => {
        // SAFETY: the contract of all calls.
        $crate::failure::or_default(|| unsafe { $crate::arguments::take_back($given) })
    };
}

/// The number of rows of a list; 0 for null.
macro_rules! count {
    ($list:ident) => {
        // SAFETY: the contract of all calls.
        unsafe { $list.as_ref() }.map_or(0, |list| list.0.get().len())
    };
}

/// A row of a list by its index; null for a null list and beyond the end.
macro_rules! row {
    ($list:ident, $index:ident) => {
        // SAFETY: the contract of all calls.
        unsafe { $list.as_ref() }
            .and_then(|list| list.0.get().get($index))
            .map_or(std::ptr::null(), std::ptr::from_ref)
    };
}

/// Structures of C that have the fields of the library's, by the same names, and others of a fixed value.
macro_rules! copied {
    ($($rust:ident => $c:ident { $($field:ident),* $(; $other:ident = $value:expr)? })*) => {$(
        impl From<$rust> for $c {
            fn from(from: $rust) -> Self {
                Self { $($field: from.$field.into(),)* $($other: $value,)? }
            }
        }
    )*};
}
