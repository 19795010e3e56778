//! A request's grammar, compiled before the request is queued: what cannot be enforced is refused.

use crate::app::AppState;
use crate::tenant::Tenant;
use crate::tokenise::{JobSize, PoolFailure};
use headrace_dialect::grammar::{Grammar, GrammarField};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_grammar::{CompiledGrammar, GrammarSource};

/// Compiles on the lane of grammars.
pub(super) async fn compile(
    state: &AppState,
    tenant: Tenant,
    field: GrammarField,
    dialect: Dialect,
) -> Result<CompiledGrammar, Refusal> {
    let param = match dialect {
        Dialect::Native => "grammar",
        Dialect::OpenAi => "response_format",
    };
    if state.config().disable_grammar_support {
        return Err(Refusal::validation(param, "grammar is not supported"));
    }
    let lenient = state.config().lenient_grammar;
    let services = state.shared_services()?;
    let GrammarField {
        grammar,
        path,
        value_path,
    } = field;
    let weight = grammar.weight();
    let source = match grammar {
        Grammar::Regex(regex) => GrammarSource::Regex(regex),
        Grammar::Json {
            schema,
            whitespace_pattern,
        } => GrammarSource::Json {
            schema,
            whitespace_pattern,
        },
    };
    let compiled = state
        .grammar_pool()
        .run(tenant, JobSize::of(weight), move || {
            services
                .grammar_compiler(lenient)
                .and_then(|compiler| compiler.compile(&source))
        })
        .await;
    match compiled {
        Ok(Ok(grammar)) => Ok(grammar),
        Ok(Err(error)) => {
            let place = if error.is_of_white_space() {
                format!("{path}.whitespace_pattern")
            } else {
                value_path
            };
            let line = format!("grammar is not valid: `{place}`: {error}");
            Err(Refusal::validation(param, line))
        }
        Err(PoolFailure::Full) => Err(Refusal::overloaded()),
        Err(failure @ PoolFailure::Lost) => Err(Refusal::new(Cause::Internal, failure.to_string())),
    }
}
