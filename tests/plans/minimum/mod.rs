//! The least memory of captures, from the journal to the check of certificates.

mod certificates;
mod definition;
mod journals;
mod lifetimes;
mod reports;
pub mod traces;
