//! Pages that draw captures.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use regraph::settings::Reuse;
use regraph_cli::plot::{Least, Plot, Series};
use regraph_cli::replay::Plan;
use regraph_plugin::Plugin;
use regraph_trace::Trace;

use crate::allocator::allocator;
use crate::errors;
use crate::estimates;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(plot, module)?)
}

/// Draws a trace's file, or the capture that was shown last, into a page, or a drawing where the page's name ends in
/// `.svg`.
#[pyfunction]
fn plot(py: Python<'_>, trace: Option<PathBuf>, title: &str, page: PathBuf) -> PyResult<()> {
    let drawn = py.detach(|| draw(trace.as_deref(), title, &page));
    drawn.map_err(errors::error)
}

fn draw(trace: Option<&Path>, title: &str, page: &Path) -> Result<(), String> {
    let trace = match trace {
        Some(path) => read(path).map_err(|error| format!("{}: {error}", path.display()))?,
        None => estimates::take_shown().ok_or("The function captured nothing.")?,
    };
    // As captures of PyTorch have it, whose traces these are.
    let settings = allocator().map_or_else(|_| regraph_plugin::of_hosts(), Plugin::settings);
    let programmatic = settings.programmatic;
    let series = Series::run_all(&trace, Reuse::ALL, Plan::ALL, programmatic, |_| ())
        .map_err(|(run, error)| format!("{title}: {run}: {error}"))?;
    let least = Least::of(&trace, programmatic);
    let plot = Plot { title, trace: &trace, series: &series, least: Some(&least) };
    let is_drawing = page.extension().is_some_and(|it| it == "svg");
    let text = if is_drawing { plot.svg() } else { plot.html() };
    fs::write(page, text).map_err(|error| format!("{}: {error}", page.display()))
}

fn read(path: &Path) -> Result<Trace, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let trace = regraph_trace::read(BufReader::new(file)).map_err(|error| error.to_string())?;
    if trace.captures() == 0 {
        return Err("The trace has no capture.".to_owned());
    }
    Ok(trace)
}
