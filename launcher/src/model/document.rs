//! Files on disk to the model document.

use super::Place;
use super::vocabulary::tokenizer;
use crate::failure::Failure;
use crate::flags::Dtype;
use crate::log::Log;
use crate::settings::{ModelSettings, TOKENIZER_CONFIG, is_template};
use headrace_checkpoint::gguf::GgufModel;
use headrace_checkpoint::hf_config::{DecoderShape, HfConfig, config_from_gguf};
use headrace_checkpoint::layout::{check_gguf, check_safetensors, vocab_size_of_safetensors};
use headrace_checkpoint::safetensors::SafetensorsModel;
use headrace_control::{ModelDocument, TokenizerSource, Weights};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Files of formats that run code when they are loaded.
const PICKLES: [&str; 5] = ["bin", "pt", "pth", "ckpt", "pkl"];

/// What the hub said about a snapshot, and where the model will run.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// Commit.
    pub(crate) revision: Option<String>,
    /// `pipeline_tag`.
    pub(crate) pipeline_tag: Option<String>,
    /// The workers compute on CUDA.
    pub(crate) is_cuda: bool,
}

/// What a model's configuration alone decides, before its weights are there.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) shape: DecoderShape,
    pub(crate) dtype: Dtype,
}

/// Checks flags against the configuration in a folder; `None` if there is none, or one that `resolve` will refuse.
pub(crate) fn outline(
    folder: &Path,
    settings: &ModelSettings,
    is_cuda: bool,
) -> Result<Option<Outline>, Failure> {
    let Ok(config) = HfConfig::open(folder.join("config.json")) else {
        return Ok(None);
    };
    let Ok(shape) = config.decoder_shape() else {
        return Ok(None);
    };
    let dtype = dtype(settings, &config, is_cuda)?;
    let factor = settings.rope_scaling.map_or(1.0, |(_, factor)| factor);
    check_limits(stretched(shape.max_position_embeddings, factor), settings)?;
    Ok(Some(Outline { shape, dtype }))
}

/// Checks the files and says where everything is.
pub(crate) fn resolve(
    place: &Place,
    settings: &ModelSettings,
    origin: Origin,
    log: &Log,
) -> Result<ModelDocument, Failure> {
    let files = match place {
        Place::Folder(folder) => {
            let folder = absolute(folder);
            check_holds_model(&folder, settings)?;
            folder_files(&folder, settings, log)?
        }
        Place::Gguf(path) => gguf_files(&absolute(path), settings)?,
        Place::Hub(id) => return Err(Failure::new(format!("{id}: was not downloaded"))),
    };
    let dtype = dtype(settings, &files.config, origin.is_cuda)?;
    let mut document = ModelDocument {
        model_id: settings.model_id.clone(),
        revision: origin.revision,
        pipeline_tag: origin.pipeline_tag,
        weights: files.weights,
        config: files.config.into_value(),
        tokenizer: files.tokenizer,
        tokenizer_config: files.tokenizer_config,
        chat_template: files.chat_template,
        generation_config: files.generation_config,
        dtype: dtype.name().to_owned(),
        max_position_embeddings: files.shape.max_position_embeddings,
        vocab_size: files.vocab_size,
    };
    stretch(&mut document, settings);
    use_tokenizer_config(&mut document, settings)?;
    check_limits(document.max_position_embeddings, settings)?;
    Ok(document)
}

/// What a place holds.
struct ModelFiles {
    config: HfConfig,
    shape: DecoderShape,
    weights: Weights,
    vocab_size: u32,
    tokenizer: TokenizerSource,
    tokenizer_config: Option<PathBuf>,
    chat_template: Option<PathBuf>,
    generation_config: Option<PathBuf>,
}

/// A folder without a configuration holds no model: the line says what it holds instead, if that helps.
fn check_holds_model(folder: &Path, settings: &ModelSettings) -> Result<(), Failure> {
    if folder.join("config.json").exists() {
        return Ok(());
    }
    let id = &settings.model_id;
    let shown = folder.display();
    // A snapshot of the hub has a place that nobody typed.
    let subject = if Path::new(id).is_dir() {
        format!("--model-id {id}")
    } else {
        format!("--model-id {id} ({shown})")
    };
    let hint = if let Some(gguf) = first_with_extension(folder, &["gguf"]) {
        format!("no config.json; give the file {} itself", gguf.display())
    } else if let Some(snapshot) = snapshot_within(folder) {
        format!(
            "no config.json; it is a folder of the hub's cache: give the snapshot {} in it, or the hub id",
            snapshot.display()
        )
    } else {
        "holds no model: there is neither a config.json nor a .gguf file in it".to_owned()
    };
    Err(Failure::new(format!("{subject}: {hint}")))
}

/// `snapshots/COMMIT` of a model's folder in the hub's cache.
fn snapshot_within(folder: &Path) -> Option<PathBuf> {
    let mut snapshots: Vec<PathBuf> = std::fs::read_dir(folder.join("snapshots"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("config.json").exists())
        .collect();
    snapshots.sort();
    snapshots.into_iter().next()
}

fn folder_files(folder: &Path, settings: &ModelSettings, log: &Log) -> Result<ModelFiles, Failure> {
    let existing = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    let config = HfConfig::open(folder.join("config.json"))?;
    let shape = config.decoder_shape()?;
    // That it is a directory was seen before anything started.
    let weights_folder = settings
        .weights_folder
        .as_deref()
        .map_or_else(|| folder.to_owned(), absolute);
    let Some(model) = SafetensorsModel::open(&weights_folder)? else {
        return Err(no_weights(&weights_folder, settings));
    };
    let rows = vocab_size_of_safetensors(&model, &config)?;
    check_safetensors(&model, &shape)?;
    let tokenizer_config = existing("tokenizer_config.json");
    let generation_config = existing("generation_config.json");
    for path in tokenizer_config.iter().chain(&generation_config) {
        read_object(path)?;
    }
    let tokenizer = tokenizer(folder, log)?;
    Ok(ModelFiles {
        vocab_size: narrow(&config, rows)?,
        weights: Weights::Safetensors {
            files: model
                .files()
                .iter()
                .map(|file| file.path().to_owned())
                .collect(),
        },
        tokenizer: TokenizerSource::TokenizerJson {
            path: tokenizer.tokenizer,
        },
        tokenizer_config: tokenizer.config.or(tokenizer_config),
        chat_template: existing("chat_template.jinja").or_else(|| existing("chat_template.json")),
        generation_config,
        config,
        shape,
    })
}

fn gguf_files(path: &Path, settings: &ModelSettings) -> Result<ModelFiles, Failure> {
    if settings.weights_folder.is_some() {
        let line = "--weights-cache-override: a GGUF file holds its own weights";
        return Err(Failure::usage(line));
    }
    let model = GgufModel::open(path)?;
    let config = config_from_gguf(&model)?;
    let shape = config.decoder_shape()?;
    check_gguf(&model, &shape)?;
    // The tokenizer's kind and pieces are the router's to read; that there is one can be told here.
    model.first().string("tokenizer.ggml.model")?;
    Ok(ModelFiles {
        vocab_size: narrow(&config, shape.vocab_size)?,
        weights: Weights::Gguf {
            files: model
                .parts()
                .iter()
                .map(|part| part.path().to_owned())
                .collect(),
        },
        tokenizer: TokenizerSource::Gguf {
            path: model.first().path().to_owned(),
        },
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        config,
        shape,
    })
}

fn no_weights(folder: &Path, settings: &ModelSettings) -> Failure {
    let flag = match settings.weights_folder {
        Some(_) => "--weights-cache-override ",
        None => "",
    };
    match first_with_extension(folder, &PICKLES) {
        Some(pickle) => Failure::new(format!(
            "{flag}{}: pickled weights are never loaded, for that may run code; convert them to safetensors",
            pickle.display()
        )),
        None => Failure::new(format!("{flag}{}: no *.safetensors file", folder.display())),
    }
}

fn first_with_extension(folder: &Path, extensions: &[&str]) -> Option<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .and_then(|extension| extension.to_str())
                .is_some_and(|extension| extensions.contains(&extension))
        })
        .collect();
    paths.sort();
    paths.into_iter().next()
}

/// The CPU computes in float32 and nothing else: another type would be a promise that is not kept.
fn dtype(settings: &ModelSettings, config: &HfConfig, is_cuda: bool) -> Result<Dtype, Failure> {
    if !is_cuda {
        return match settings.dtype {
            None | Some(Dtype::Float32) => Ok(Dtype::Float32),
            Some(other) => Err(Failure::usage(format!(
                "--dtype {}: on the CPU everything is computed in float32; leave the flag out",
                other.name()
            ))),
        };
    }
    let stored = config
        .get("dtype")
        .or_else(|| config.get("torch_dtype"))
        .and_then(Value::as_str);
    Ok(settings.dtype.unwrap_or(match stored {
        Some("float16") => Dtype::Float16,
        Some("float32") => Dtype::Float32,
        _ => Dtype::Bfloat16,
    }))
}

/// `--rope-scaling`: in place of the config's own scaling, whichever of the two keys it uses.
fn stretch(document: &mut ModelDocument, settings: &ModelSettings) {
    let (Some((scaling, factor)), Some(config)) =
        (settings.rope_scaling, document.config.as_object_mut())
    else {
        return;
    };
    let mut parameters = Map::new();
    if let Some(theta) = config
        .get("rope_parameters")
        .and_then(|known| known.get("rope_theta"))
    {
        parameters.insert("rope_theta".into(), theta.clone());
    }
    parameters.insert("rope_type".into(), scaling.name().into());
    parameters.insert("factor".into(), json!(factor));
    let key = if config.contains_key("rope_parameters") {
        "rope_parameters"
    } else {
        "rope_scaling"
    };
    config.insert(key.to_owned(), Value::Object(parameters));
    document.max_position_embeddings = stretched(document.max_position_embeddings, factor);
}

/// Positions after `--rope-scaling`.
fn stretched(positions: u32, factor: f64) -> u32 {
    let stretched = f64::from(positions) * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and `as` ends at the type's largest value"
    )]
    let stretched = stretched as u32;
    stretched
}

/// `--tokenizer-config-path`: a template alone, or a whole config whose template counts if it has one.
fn use_tokenizer_config(
    document: &mut ModelDocument,
    settings: &ModelSettings,
) -> Result<(), Failure> {
    let Some(path) = &settings.tokenizer_config else {
        return Ok(());
    };
    let path = absolute(path);
    if is_template(&path) {
        document.chat_template = Some(path);
        return Ok(());
    }
    let config = read_object(&path)
        .map_err(|failure| failure.in_words(format!("{TOKENIZER_CONFIG} {failure}")))?;
    if config.contains_key("chat_template") {
        document.chat_template = Some(path.clone());
    }
    document.tokenizer_config = Some(path);
    Ok(())
}

fn check_limits(context: u32, settings: &ModelSettings) -> Result<(), Failure> {
    if let Some(total) = settings.max_total_tokens
        && total > context
    {
        let line = format!("--max-total-tokens {total}: the model's context is {context}");
        return Err(Failure::usage(line));
    }
    if let Some(input) = settings.max_input_tokens
        && input >= context
    {
        let line =
            format!("--max-input-tokens {input}: must be below the model's context, {context}");
        return Err(Failure::usage(line));
    }
    Ok(())
}

fn narrow(config: &HfConfig, rows: u64) -> Result<u32, Failure> {
    u32::try_from(rows).map_err(|_| {
        Failure::new(format!(
            "{}: key `vocab_size` is {rows}",
            config.path().display()
        ))
    })
}

fn read_object(path: &Path) -> Result<Map<String, Value>, Failure> {
    let text = std::fs::read(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::new(format!("{}: not a JSON object: {error}", path.display())))
}

/// Workers need not share the launcher's working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
