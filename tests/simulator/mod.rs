//! The simulated driver.

mod driver;
mod executables;
mod gates;
