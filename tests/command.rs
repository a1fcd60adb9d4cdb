//! The command's manners.
