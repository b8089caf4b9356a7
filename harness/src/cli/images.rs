//! `fencepost images`: the images of lock services.

use std::{process::ExitCode, time::Duration};

use clap::Subcommand;
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use fencepost_checker::exit;
use indicatif::{ProgressBar, ProgressStyle};

use super::{block_on, fail};
use crate::{
    host::{HostError, docker},
    images::{self, Image, RECIPES, Recipe, Say},
};

/// Build or list the images that --on docker starts servers from
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Build images from Debian packages (a run does it by itself when it needs one)
    Build {
        /// Images to build; all of them when none is named
        names: Vec<String>,
        /// One JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// List the images, what they are made of, and whether they are built
    List {
        /// One JSON array on standard output
        #[arg(long)]
        json: bool,
    },
}

pub fn main(args: Args) -> ExitCode {
    let done = match args.command {
        Cmd::Build { names, json } => match chosen(&names) {
            Ok(recipes) => block_on(build(recipes, json)),
            Err(unknown) => return fail(exit::USAGE, unknown),
        },
        Cmd::List { json } => block_on(list(json)),
    };
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => fail(exit::HARNESS, e),
        Err(code) => code,
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Recipe>, String> {
    if names.is_empty() {
        return Ok(RECIPES.iter().collect());
    }
    let known = || {
        RECIPES
            .iter()
            .map(|r| r.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    names
        .iter()
        .map(|n| {
            images::recipe_of(n)
                .ok_or_else(|| format!("no image is called {n:?}: there are {}", known()))
        })
        .collect()
}

async fn build(recipes: Vec<&'static Recipe>, json: bool) -> Result<(), HostError> {
    let engine = docker::engine().await?;
    let mut built: Vec<Image> = Vec::new();
    for recipe in recipes {
        let bar = spinner(recipe.name);
        let shown = bar.clone();
        let say = Say::new(move |line| shown.set_message(line.to_string()));
        let image = images::ensure(&engine, recipe, &say).await;
        bar.finish_and_clear();
        let image = image?;
        if !json {
            println!(
                "{}  {}  ({})",
                recipe.name,
                image.name,
                image.packages.join(", ")
            );
        }
        built.push(image);
    }
    if json {
        println!("{}", serde_json::json!({ "built": built }));
    }
    Ok(())
}

fn spinner(name: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_prefix(name.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

async fn list(json: bool) -> Result<(), HostError> {
    let engine = docker::engine().await?;
    let mut rows = Vec::new();
    for recipe in RECIPES {
        let tag = recipe.tag();
        let built = engine.inspect_image(&tag).await.is_ok();
        rows.push((recipe, tag, built));
    }
    if json {
        let all: Vec<_> = rows
            .iter()
            .map(|(r, tag, built)| {
                serde_json::json!({ "name": r.name, "base": r.base, "packages": r.packages,
                                    "image": tag, "built": built })
            })
            .collect();
        println!("{}", serde_json::Value::from(all));
        return Ok(());
    }
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_header(["name", "debian", "packages", "image", "built"]);
    for (r, tag, built) in rows {
        let built = if built { "yes" } else { "no" };
        table.add_row([r.name, r.base, &r.packages.join(" "), &tag, built]);
    }
    println!("{table}");
    Ok(())
}
