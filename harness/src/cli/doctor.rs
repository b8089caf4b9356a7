//! `fencepost doctor`: what this machine can do.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};

use super::block_on;
use crate::doctor;

/// Show what this machine can do, what is missing, and the command that brings it
#[derive(clap::Args)]
pub struct Args {
    /// One JSON array on standard output
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> ExitCode {
    let findings = match block_on(doctor::examine()) {
        Ok(findings) => findings,
        Err(code) => return code,
    };
    if args.json {
        println!("{}", serde_json::json!(findings));
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["", "what", "found", "needed for", "to get it"]);
    for f in &findings {
        let mark = if f.ok { "ok" } else { "--" };
        table.add_row([mark, &f.name, &f.detail, &f.needed_for, &f.fix]);
    }
    println!("{table}");
    println!("`fencepost run kleppmann-pause` needs none of them.");
    ExitCode::SUCCESS
}
