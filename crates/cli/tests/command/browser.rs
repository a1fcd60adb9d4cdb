//! The page in a real browser: what is seen, what a pointer and keys do. Skipped, with a word, where there is none.
//!
//! Screenshots stay in the target folder's `tmp`, as `plot_light.png` and `plot_dark.png`.

use std::path::{Path, PathBuf};
use std::process::Command;

use regraph::settings::{Programmatic, Reuse};
use regraph::snapshot::Frame;
use regraph_cli::plot::{Least, Plot, Series};
use regraph_cli::replay::Plan;
use regraph_trace::{Labels, Operation, Trace};

/// Programs that take Chromium's arguments; `REGRAPH_BROWSER` names another one.
const BROWSERS: [&str; 5] =
    ["chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "chrome"];

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("REGRAPH_BROWSER") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .flat_map(|folder| BROWSERS.map(|name| folder.join(name)))
        .find(|path| path.is_file())
}

/// Opens a page; returns what the document is in the end, if that is asked for.
fn open(browser: &Path, arguments: &[&str], page: &Path) -> String {
    let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--window-size=1280,2300", "--virtual-time-budget=4000", "--timeout=60000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A trace that was recorded, with names and lines of code as a model has them.
fn trace() -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/moe_s6.jsonl");
    let text = std::fs::read(path).unwrap();
    let trace = regraph_trace::read(text.as_slice()).unwrap();
    let places = [("attention", 41), ("router", 58), ("experts", 77), ("norm", 12)];
    let mut labels = Labels::default();
    let blocks = trace.operations().iter().filter_map(|operation| match *operation {
        Operation::Alloc { id, .. } => Some(id),
        _ => None,
    });
    for id in blocks {
        let (name, line) = places[(id / 3 % 4) as usize];
        let frame = |line, name: &str| Frame {
            filename: "/srv/model.py".to_owned(),
            line,
            name: name.to_owned(),
        };
        labels.place_block(id, vec![frame(line, name), frame(120, "<module> & \"main\"")]);
    }
    trace.with_labels(labels)
}

/// What a person does, and what is read then: before the page's own script, and behind it.
const BEFORE: &str = r#"<script>
  addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
</script>"#;
const BEHIND: &str = r##"<script>
  const seen = {};
  const chart = document.getElementById("chart");
  const tip = document.getElementById("tip");
  const move = (target, x, y) => target.dispatchEvent(
    new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
  // The largest block of the second panel, under whatever lies over it there.
  const panel = chart.querySelectorAll(".panel")[1];
  const area = (it) => it.width.baseVal.value * it.height.baseVal.value;
  const blocks = [...panel.querySelectorAll("rect[data-b]")];
  const block = blocks.reduce((one, other) => (area(other) > area(one) ? other : one));
  const box = block.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  seen.onTop = document.elementFromPoint(x, y) === block;
  seen.hiddenBefore = tip.hidden;
  move(document.elementFromPoint(x, y), x, y);
  seen.tip = tip.textContent;
  seen.shown = !tip.hidden && getComputedStyle(tip).display !== "none";
  const told = tip.getBoundingClientRect();
  seen.inside = told.left >= 0 && told.top >= 0 && told.right <= innerWidth && told.bottom <= innerHeight;
  seen.picked = chart.querySelectorAll(".picked").length;
  seen.operation = document.getElementById("operation").textContent;
  chart.dispatchEvent(new PointerEvent("pointerleave"));
  seen.hiddenAfter = tip.hidden && chart.querySelectorAll(".picked").length === 0;
  chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  seen.key = document.getElementById("operation").textContent;
  // Blocks and text stand out from what is behind them.
  const rgb = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = (colour) => {
    const [r, g, b] = rgb(colour).map((it) => it / 255)
      .map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((p, q) => q - p);
    return (a + 0.05) / (b + 0.05);
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  const fill = (selector) => getComputedStyle(chart.querySelector(selector)).fill;
  const held = fill("rect.held");
  const text = getComputedStyle(document.body).color;
  seen.ground = light(ground);
  seen.text = contrast(text, ground);
  seen.faint = contrast(fill("text.mark"), ground);
  const used = [...new Set(blocks.map((it) => it.classList[0]))];
  seen.blocks = Math.min(...used.map((it) => contrast(fill("." + it), held)));
  seen.captions = Math.min(...used.map((it) => contrast(fill("text.name"), fill("." + it))));
  // No word is cut off by the window, but for tables that scroll.
  seen.wide = document.documentElement.scrollWidth <= innerWidth;
  seen.error = document.documentElement.dataset.error ?? null;
  document.body.dataset.seen = JSON.stringify(seen);
</script>"##;

#[test]
fn a_page_is_read_in_a_browser_in_light_and_dark() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no browser (one of {}, or REGRAPH_BROWSER)", BROWSERS.join(", "));
        return;
    };
    let trace = trace();
    let programmatic = Programmatic::default();
    let series = Series::run_all(&trace, Reuse::ALL, Plan::ALL, programmatic, |_| ()).unwrap();
    let least = Least::of(&trace, programmatic);
    let title = "moe_s6 & <names>";
    let plot = Plot { title, trace: &trace, series: &series, least: Some(&least) };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (page, acted, drawing) =
        (folder.join("plot.html"), folder.join("plot_acted.html"), folder.join("plot.svg"));
    let html = plot.html();
    std::fs::write(&page, &html).unwrap();
    std::fs::write(&drawing, plot.svg()).unwrap();
    let watched = html.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    std::fs::write(&acted, watched.replacen("</body>", &format!("{BEHIND}</body>"), 1)).unwrap();
    for (scheme, setting) in [("light", "1"), ("dark", "0")] {
        let scheme_is = format!("--blink-settings=preferredColorScheme={setting}");
        let document = open(&browser, &[&scheme_is, "--dump-dom"], &acted);
        let seen = document.split("data-seen=\"").nth(1).expect("the script ran to its end");
        let seen = seen.split('"').next().unwrap().replace("&quot;", "\"");
        let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["error"], serde_json::Value::Null, "{scheme}: {seen}");
        for name in ["onTop", "hiddenBefore", "shown", "inside", "hiddenAfter", "wide"] {
            assert_eq!(seen[name], true, "{scheme}: {name}: {seen}");
        }
        let tip = seen["tip"].as_str().unwrap();
        assert!(tip.starts_with("block ") && tip.contains("on stream "), "{tip}");
        assert!(tip.contains("/srv/model.py:"), "{tip}");
        assert!(tip.ends_with("/srv/model.py:120 <module> & \"main\""), "{tip}");
        // In every panel.
        assert!(seen["picked"].as_u64().unwrap() >= 6, "{seen}");
        assert!(seen["operation"].as_str().unwrap().starts_with("operation "), "{seen}");
        assert!(seen["key"].as_str().unwrap().starts_with("operation 1: "), "{seen}");
        let ground = seen["ground"].as_f64().unwrap();
        assert!(if scheme == "light" { ground > 0.9 } else { ground < 0.05 }, "{scheme}: {ground}");
        for (name, least) in [("text", 7.0), ("faint", 4.5), ("blocks", 1.2), ("captions", 4.5)] {
            assert!(seen[name].as_f64().unwrap() >= least, "{scheme}: {name}: {seen}");
        }
        for (what, file) in [("plot", &page), ("plot_svg", &drawing)] {
            let picture = folder.join(format!("{what}_{scheme}.png"));
            let _ = std::fs::remove_file(&picture);
            open(&browser, &[&scheme_is, &format!("--screenshot={}", picture.display())], file);
            let bytes = std::fs::read(&picture).unwrap();
            assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000, "{}", bytes.len());
        }
    }
}
