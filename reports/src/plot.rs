//! Latency and throughput over time, as SVG by plotters.
//!
//! plotters knows fixed colours only, so each is a stand-in that is replaced by
//! a variable of the page's style sheet: plots follow light and dark like the rest.

use plotters::prelude::*;
use plotters::style::RGBColor;

use crate::ReportError;
use crate::scan::latency::{Bucket, Series, percentile_ms};

const INK: RGBColor = RGBColor(0, 0, 1);
const GRID: RGBColor = RGBColor(0, 0, 2);
const FIRST: RGBColor = RGBColor(0, 0, 3);
const SECOND: RGBColor = RGBColor(0, 0, 4);
const BAND: RGBColor = RGBColor(0, 0, 5);
const VARIABLES: [(&str, &str); 5] = [
    ("\"#000001\"", "\"var(--ink-2)\""),
    ("\"#000002\"", "\"var(--grid)\""),
    ("\"#000003\"", "\"var(--c-blue)\""),
    ("\"#000004\"", "\"var(--c-red)\""),
    ("\"#000005\"", "\"var(--band)\""),
];
const SIZE: (u32, u32) = (560, 210);
const MAX_POINTS: usize = 80;
const MAX_BANDS: usize = 80;

/// What all plots of a run share. Times in nanoseconds since the run began.
pub struct Frame {
    pub from: i64,
    pub to: i64,
    /// Width of a bucket.
    pub width: i64,
    /// The load phase, from and to.
    pub load: (i64, i64),
    /// Faults in force, from and to.
    pub bands: Vec<(i64, i64)>,
}

impl Frame {
    fn seconds(&self) -> std::ops::Range<f64> {
        let (from, to) = (self.from as f64 / 1e9, self.to as f64 / 1e9);
        from..to.max(from + 0.001)
    }

    /// Buckets put together, so that a plot has at most [`MAX_POINTS`] and each is
    /// at least `least` ns wide: middle in seconds, width in seconds, sum.
    fn merged(&self, series: &Series, least: i64) -> Vec<(f64, f64, Bucket)> {
        let by_points = (self.to - self.from).max(1) / self.width / MAX_POINTS as i64 + 1;
        let by_width = (least + self.width - 1) / self.width;
        let n = by_points.max(by_width).max(1) as usize;
        let width = n as f64 * self.width as f64 / 1e9;
        let groups = series.buckets.chunks(n).enumerate().map(|(at, group)| {
            let mut sum = group[0].clone();
            for more in &group[1..] {
                sum.add(more);
            }
            ((at as f64 + 0.5) * width, width, sum)
        });
        let range = self.seconds();
        groups.filter(|(x, ..)| range.contains(x)).collect()
    }
}

/// Grid and labels, alike in all plots; a macro since the chart's type differs.
macro_rules! mesh {
    ($chart:ident, $y_label:expr) => {
        $chart
            .configure_mesh()
            .x_labels(8)
            .y_labels(5)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .x_label_formatter(&|x| format!("{x} s"))
            .y_label_formatter(&$y_label)
            .draw()
    };
}

/// p50 and p99 of one operation, in ms on a logarithmic scale; `None` without samples.
pub fn latency(frame: &Frame, series: &Series) -> Result<Option<String>, ReportError> {
    let points = frame.merged(series, 0);
    let line = |p: f64| -> Vec<(f64, f64)> {
        let known = points.iter();
        known
            .filter_map(|(x, _, b)| Some((*x, percentile_ms(&b.latency, p)?.max(0.001))))
            .collect()
    };
    let (p50, p99) = (line(50.0), line(99.0));
    let values = || p50.iter().chain(&p99).map(|(_, y)| *y);
    if values().next().is_none() {
        return Ok(None);
    }
    let low = 10_f64.powf(values().fold(f64::INFINITY, f64::min).log10().floor());
    let high = 10_f64
        .powf(values().fold(0.0, f64::max).log10().ceil())
        .max(low * 10.0);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_right(12)
            .margin_top(8)
            .x_label_area_size(26)
            .y_label_area_size(54)
            .build_cartesian_2d(frame.seconds(), (low..high * 1.001).log_scale())
            .map_err(oops)?;
        chart.draw_series(bands(frame, low, high)).map_err(oops)?;
        mesh!(chart, |y| label_ms(*y)).map_err(oops)?;
        chart
            .draw_series(LineSeries::new(p50.clone(), FIRST.stroke_width(2)))
            .map_err(oops)?;
        chart
            .draw_series(DashedLineSeries::new(
                p99.clone(),
                5,
                3,
                SECOND.stroke_width(2),
            ))
            .map_err(oops)?;
        chart
            .draw_series(p50.iter().map(|p| Circle::new(*p, 2, FIRST.filled())))
            .map_err(oops)?;
        chart
            .draw_series(
                p99.iter()
                    .map(|p| TriangleMarker::new(*p, 4, SECOND.filled())),
            )
            .map_err(oops)?;
        root.present().map_err(oops)?;
    }
    Ok(Some(themed(svg)))
}

/// Acquires sent and grants received a second, and the target.
pub fn throughput(
    frame: &Frame,
    acquires: &Series,
    target: Option<f64>,
) -> Result<Option<String>, ReportError> {
    let points = frame.merged(acquires, 500_000_000);
    let (mut sent, mut granted) = (Vec::new(), Vec::new());
    for (x, width, bucket) in &points {
        // A bucket at the edge of the load counts for the part that is in it.
        let from = (x - width / 2.0).max(frame.load.0 as f64 / 1e9);
        let part = (x + width / 2.0).min(frame.load.1 as f64 / 1e9) - from;
        if part > width / 4.0 {
            sent.push((*x, bucket.invoked as f64 / part));
            granted.push((*x, bucket.ok as f64 / part));
        }
    }
    let top = sent
        .iter()
        .chain(&granted)
        .map(|(_, y)| *y)
        .fold(target.unwrap_or(0.0), f64::max);
    if top <= 0.0 {
        return Ok(None);
    }
    let top = top * 1.15;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin_right(12)
            .margin_top(8)
            .x_label_area_size(26)
            .y_label_area_size(54)
            .build_cartesian_2d(frame.seconds(), 0.0..top)
            .map_err(oops)?;
        chart.draw_series(bands(frame, 0.0, top)).map_err(oops)?;
        mesh!(chart, |y| format!("{y}")).map_err(oops)?;
        if let Some(target) = target {
            let x = frame.seconds();
            let line = [(x.start, target), (x.end, target)];
            chart
                .draw_series(DashedLineSeries::new(line, 2, 4, INK.stroke_width(2)))
                .map_err(oops)?;
        }
        chart
            .draw_series(DashedLineSeries::new(sent, 5, 3, SECOND.stroke_width(2)))
            .map_err(oops)?;
        chart
            .draw_series(LineSeries::new(granted.clone(), FIRST.stroke_width(2)))
            .map_err(oops)?;
        chart
            .draw_series(granted.iter().map(|p| Circle::new(*p, 2, FIRST.filled())))
            .map_err(oops)?;
        root.present().map_err(oops)?;
    }
    Ok(Some(themed(svg)))
}

fn bands(frame: &Frame, low: f64, high: f64) -> Vec<Rectangle<(f64, f64)>> {
    let range = frame.seconds();
    let inside = frame.bands.iter().filter_map(|(from, to)| {
        let from = (*from as f64 / 1e9).max(range.start);
        let to = (*to as f64 / 1e9).min(range.end);
        (from < to).then(|| Rectangle::new([(from, low), (to, high)], BAND.filled()))
    });
    inside.take(MAX_BANDS).collect()
}

fn label_ms(ms: f64) -> String {
    match ms {
        v if v >= 1_000.0 => format!("{} s", v / 1_000.0),
        v if v >= 1.0 => format!("{v} ms"),
        v => format!("{} µs", (v * 1_000.0).round()),
    }
}

fn themed(svg: String) -> String {
    let mut svg = svg.replacen("<svg ", "<svg class=\"plot\" aria-hidden=\"true\" ", 1);
    for (stand_in, variable) in VARIABLES {
        svg = svg.replace(stand_in, variable);
    }
    svg
}

fn oops(error: impl std::fmt::Display) -> ReportError {
    ReportError::Layout {
        what: "a plot",
        reason: error.to_string(),
    }
}
