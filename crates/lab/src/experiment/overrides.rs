//! Changes to an experiment from the command line.

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

/// Sets one key, as `workload.scale=10` says. Arms are named: `arm.ext4.mount_options=noatime`.
///
/// The value is read as TOML (`10`, `true`, `[1, 2]`, `{ a = 1 }`) and taken as a text when it is none. Tables on the way
/// are made; whether the key means anything is found when the experiment is read.
pub fn apply_override(table: &mut Table, assignment: &str) -> Result<()> {
    let (path, text) = assignment
        .split_once('=')
        .with_context(|| format!("--set {assignment}: write KEY=VALUE, such as workload.scale=10"))?;
    let keys: Vec<&str> = path.trim().split('.').collect();
    ensure!(
        keys.iter().all(|key| !key.is_empty()),
        "--set {assignment}: a part of the key is empty"
    );
    set(table, &keys, value_of(text.trim())).with_context(|| format!("--set {assignment}"))
}

fn value_of(text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>();
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(table: &mut Table, keys: &[&str], value: Value) -> Result<()> {
    match keys {
        [] => Ok(()),
        [last] => {
            table.insert((*last).to_owned(), value);
            Ok(())
        }
        ["arm", name, rest @ ..] if matches!(table.get("arm"), Some(Value::Array(_))) => {
            ensure!(
                !rest.is_empty(),
                "name a key of the arm, such as arm.{name}.mount_options"
            );
            let arm = arms_of(table)?
                .iter_mut()
                .filter_map(Value::as_table_mut)
                .find(|arm| name_of(arm) == Some(name));
            set(
                arm.with_context(|| format!("there is no arm '{name}'"))?,
                rest,
                value,
            )
        }
        [first, rest @ ..] => {
            let inner = table
                .entry((*first).to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            match inner {
                Value::Table(inner) => set(inner, rest, value),
                _ => bail!("{first} is no table"),
            }
        }
    }
}

/// Keeps only the arms with these names, and the control, whose name is returned when it was not among them.
pub fn keep_arms(table: &mut Table, names: &[String]) -> Result<Option<String>> {
    let control = table.get("control").and_then(Value::as_str).map(str::to_owned);
    let arms = arms_of(table)?;
    let known: Vec<String> = arms
        .iter()
        .filter_map(|arm| name_of(arm.as_table()?).map(str::to_owned))
        .collect();
    for name in names {
        ensure!(
            known.contains(name),
            "--arms: there is no arm '{name}'; there are: {}",
            known.join(", ")
        );
    }
    let added = control.filter(|control| !names.contains(control));
    arms.retain(|arm| {
        let name = arm.as_table().and_then(name_of).unwrap_or_default();
        names.iter().any(|wanted| wanted == name) || added.as_deref() == Some(name)
    });
    Ok(added)
}

fn arms_of(table: &mut Table) -> Result<&mut Vec<Value>> {
    table
        .get_mut("arm")
        .and_then(Value::as_array_mut)
        .context("the experiment has no [[arm]]")
}

fn name_of(arm: &Table) -> Option<&str> {
    arm.get("name").and_then(Value::as_str)
}
