//! The simulated driver.

mod driver;
mod gates;
