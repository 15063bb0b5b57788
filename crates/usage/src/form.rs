//! The wire forms: where requests and answers have their numbers.

use std::sync::Arc;

use memchr::memmem;

use crate::answer_paths::AnswerPaths;
use crate::own_form::OwnForm;
use crate::request_paths::RequestPaths;

/// How a provider writes what a request may cost and did cost. Cheap to clone.
#[derive(Debug, Clone)]
pub struct UsageForm {
    pub(crate) name: FormName,
    /// Where its paths come from, if they are the operator's own.
    own: Option<Arc<OwnForm>>,
    pub(crate) request: Arc<RequestPaths>,
    pub(crate) answer: Arc<AnswerPaths>,
}

/// A form without a path for something.
const NONE: &[&str] = &[];

/// Which form it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormName {
    /// Chat completions, completions, responses and embeddings of OpenAI, and of the many servers that speak the same.
    OpenAi,
    /// Messages of Anthropic.
    Anthropic,
    /// Contents and embeddings of Gemini.
    Gemini,
    /// Paths of the operator's own.
    Own,
}

impl UsageForm {
    /// The form of OpenAI and of servers that are compatible with it.
    pub fn openai() -> Self {
        Self {
            name: FormName::OpenAi,
            own: None,
            request: Arc::new(RequestPaths::new(
                &["max_completion_tokens", "max_output_tokens", "max_tokens"],
                &["n", "best_of"],
            )),
            answer: Arc::new(AnswerPaths::openai()),
        }
    }

    /// The form of Anthropic's messages.
    pub fn anthropic() -> Self {
        Self {
            name: FormName::Anthropic,
            own: None,
            request: Arc::new(RequestPaths::new(&["max_tokens"], NONE)),
            answer: Arc::new(AnswerPaths::anthropic()),
        }
    }

    /// The form of Gemini.
    pub fn gemini() -> Self {
        Self {
            name: FormName::Gemini,
            own: None,
            request: Arc::new(RequestPaths::new(
                &["generationConfig.maxOutputTokens"],
                &["generationConfig.candidateCount"],
            )),
            answer: Arc::new(AnswerPaths::gemini()),
        }
    }

    /// A form of the operator's own paths.
    pub fn own(form: &OwnForm) -> Self {
        Self {
            name: FormName::Own,
            own: Some(Arc::new(form.clone())),
            request: Arc::new(RequestPaths::new(&form.maximum, &form.times)),
            answer: Arc::new(AnswerPaths::own(form)),
        }
    }

    /// Which form it is.
    pub fn name(&self) -> FormName {
        self.name
    }
}

impl PartialEq for UsageForm {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.own) == (other.name, &other.own)
    }
}

impl Eq for UsageForm {}

/// What is read on a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageSetting {
    /// Nothing.
    #[default]
    Off,
    /// The form that the end of the path stands for; other paths are not read.
    Auto(Arc<AutoForms>),
    /// One form, on every path.
    Form(UsageForm),
}

/// One form, on every path.
impl From<UsageForm> for UsageSetting {
    fn from(form: UsageForm) -> Self {
        Self::Form(form)
    }
}

/// The forms that [`UsageSetting::Auto`] chooses from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoForms {
    openai: UsageForm,
    anthropic: UsageForm,
    gemini: UsageForm,
}

impl UsageSetting {
    /// The setting `auto`.
    pub fn auto() -> Self {
        Self::Auto(Arc::new(AutoForms {
            openai: UsageForm::openai(),
            anthropic: UsageForm::anthropic(),
            gemini: UsageForm::gemini(),
        }))
    }

    /// A setting by its name: `openai`, `anthropic`, `gemini`, `auto` or `off`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "off" => Self::Off,
            "auto" => Self::auto(),
            "openai" => Self::Form(UsageForm::openai()),
            "anthropic" => Self::Form(UsageForm::anthropic()),
            "gemini" => Self::Form(UsageForm::gemini()),
            _ => return None,
        })
    }

    /// The form of a request to a path, which must be in its normal form.
    pub fn form(&self, path: &str) -> Option<&UsageForm> {
        match self {
            Self::Off => None,
            Self::Form(form) => Some(form),
            Self::Auto(forms) => Some(match ModelEndpoint::of(path)?.form() {
                FormName::Anthropic => &forms.anthropic,
                FormName::Gemini => &forms.gemini,
                _ => &forms.openai,
            }),
        }
    }
}

/// What a request asks for, by the end of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelEndpoint {
    ChatCompletions,
    Completions,
    Responses,
    Embeddings,
    Messages,
    GenerateContent,
    EmbedContent,
}

/// The ends of paths. A longer one comes before one that it ends with.
const ENDS: [(&str, ModelEndpoint); 9] = [
    ("/chat/completions", ModelEndpoint::ChatCompletions),
    ("/completions", ModelEndpoint::Completions),
    ("/responses", ModelEndpoint::Responses),
    ("/embeddings", ModelEndpoint::Embeddings),
    ("/messages", ModelEndpoint::Messages),
    (":generateContent", ModelEndpoint::GenerateContent),
    (":streamGenerateContent", ModelEndpoint::GenerateContent),
    (":embedContent", ModelEndpoint::EmbedContent),
    (":batchEmbedContents", ModelEndpoint::EmbedContent),
];

impl ModelEndpoint {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let found = ENDS.iter().find(|(end, _)| path.ends_with(end));
        found.map(|&(_, endpoint)| endpoint)
    }

    fn form(self) -> FormName {
        match self {
            Self::Messages => FormName::Anthropic,
            Self::GenerateContent | Self::EmbedContent => FormName::Gemini,
            _ => FormName::OpenAi,
        }
    }

    /// Whether the answer has no output.
    pub(crate) fn is_embedding(self) -> bool {
        matches!(self, Self::Embeddings | Self::EmbedContent)
    }

    /// Whether a stream has usage only if the request asks for it by `stream_options`.
    pub(crate) fn has_stream_options(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }
}

/// In front of the name of a deployment.
const DEPLOYMENTS: &[u8] = b"/deployments/";

/// Collections that a path names a model of, in front of a method: `…/models/NAME:method`.
const COLLECTIONS: [&str; 3] = ["models", "tunedModels", "endpoints"];

/// The model that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelInPath<'p> {
    pub(crate) name: &'p str,
    /// Whether the server goes by it, whatever the body says.
    pub(crate) is_binding: bool,
}

/// The model that a path names: the deployment of Azure, or the segment in front of a method of Gemini. It binds where
/// the provider has paths like this.
pub(crate) fn model_in_path(form: FormName, path: &str) -> Option<ModelInPath<'_>> {
    let (name, is_binding) = if form == FormName::Own {
        return None;
    } else if let Some(at) = memmem::find(path.as_bytes(), DEPLOYMENTS) {
        let name = path[at + DEPLOYMENTS.len()..].split('/').next()?;
        (name, form == FormName::OpenAi)
    } else {
        let (before, last) = path.rsplit_once('/')?;
        let (name, _) = last.rsplit_once(':')?;
        let collection = before.rsplit('/').next().unwrap_or_default();
        let is_binding = form != FormName::OpenAi && COLLECTIONS.contains(&collection);
        (name, is_binding)
    };
    (!name.is_empty()).then_some(ModelInPath { name, is_binding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_path_chooses_the_form() {
        let auto = UsageSetting::auto();
        for (path, form) in [
            ("/v1/chat/completions", Some(FormName::OpenAi)),
            ("/chat/completions", Some(FormName::OpenAi)),
            ("/v1/completions", Some(FormName::OpenAi)),
            ("/v1/responses", Some(FormName::OpenAi)),
            ("/v1/embeddings", Some(FormName::OpenAi)),
            (
                "/openai/deployments/gpt/chat/completions",
                Some(FormName::OpenAi),
            ),
            ("/v1/messages", Some(FormName::Anthropic)),
            ("/v1beta/models/m:generateContent", Some(FormName::Gemini)),
            (
                "/v1beta/models/m:streamGenerateContent",
                Some(FormName::Gemini),
            ),
            ("/v1beta/models/m:embedContent", Some(FormName::Gemini)),
            (
                "/v1beta/models/m:batchEmbedContents",
                Some(FormName::Gemini),
            ),
            ("/v1beta/models/m:countTokens", None),
            ("/v1/messages/count_tokens", None),
            ("/v1/models", None),
            ("/v1/chat/completions/", None),
            ("/", None),
        ] {
            assert_eq!(auto.form(path).map(UsageForm::name), form, "{path}");
        }
    }

    #[test]
    fn a_named_form_reads_every_path() {
        let named = UsageSetting::named("anthropic").unwrap();
        assert_eq!(named.form("/x").unwrap().name(), FormName::Anthropic);
        assert!(UsageSetting::named("off").unwrap().form("/x").is_none());
        assert!(UsageSetting::named("cohere").is_none());
    }

    #[test]
    fn a_path_names_its_model() {
        let (openai, gemini) = (FormName::OpenAi, FormName::Gemini);
        for (form, path, model) in [
            (
                gemini,
                "/v1beta/models/gemini-2.5-pro:generateContent",
                Some(("gemini-2.5-pro", true)),
            ),
            (
                gemini,
                "/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent",
                Some(("m", true)),
            ),
            (
                gemini,
                "/v1beta/tunedModels/m:generateContent",
                Some(("m", true)),
            ),
            (
                FormName::Anthropic,
                "/publishers/anthropic/models/m:rawPredict",
                Some(("m", true)),
            ),
            (
                openai,
                "/openai/deployments/my-gpt/chat/completions",
                Some(("my-gpt", true)),
            ),
            (gemini, "/deployments/m/x", Some(("m", false))),
            (gemini, "/x/foo:bar", Some(("foo", false))),
            (openai, "/models/foo:bar", Some(("foo", false))),
            (FormName::Own, "/models/foo:bar", None),
            (openai, "/v1/chat/completions", None),
            (openai, "/openai/deployments//chat/completions", None),
            (gemini, "/models/:generateContent", None),
        ] {
            let found = model_in_path(form, path).map(|found| (found.name, found.is_binding));
            assert_eq!(found, model, "{path}");
        }
    }
}
