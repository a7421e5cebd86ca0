"""The providers with a built-in route."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_REGION = re.compile(r"[a-z0-9-]{1,40}")
_CHAT_ENDPOINTS = (
    "audio batches chat completions embeddings files images models moderations responses"
)
_OPENAI_ENDPOINTS = (
    "agents assistants audio batch batches chat classifications classifiers completions containers "
    "conversations embeddings evals files fim fine-tunes fine_tuning images libraries models "
    "moderations ocr realtime rerank responses threads uploads vector_stores videos"
)
_OPENAI_PATHS = (
    "assistants|audio|batches|chatkit|completions|containers|conversations|edits|embeddings|engines"
    "|evals|files|fine_tuning|images|models|moderations|organization|realtime|responses|threads"
    "|uploads|vector_stores|videos"
)

Dialect = Literal["openai", "anthropic", "gemini", "bedrock", "cohere", "ollama"]
"""The API whose requests, streams and errors a provider uses."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path prefix of an API, and the endpoints below this prefix alone.

    An endpoint is its first segment, or its first two. Endpoints that several prefixes have are not
    listed: the prefix that was meant would be unknown.
    """

    path: str
    endpoints: frozenset[str] = frozenset()


def _prefix_at(path: str, endpoints: str = "") -> Prefix:
    return Prefix(path, frozenset(endpoints.split()))


@dataclass(frozen=True, slots=True)
class Provider:
    """A built-in route.

    `url` is None if the URL depends on the account. `variables` are the environment variables of the
    SDKs for a base URL, each with the path to append to the route's URL. `keys` are the variables of
    keys, each with the variables that can stand in. `further_keys` are the variables of a few
    SDKs that know no other name for the key.
    """

    name: str
    url: str | None
    dialect: Dialect = "openai"
    variables: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    further_keys: tuple[str, ...] = ()
    regional: str = ""
    """The URL with `REGION` as a placeholder, for a provider of AWS."""
    hosts: tuple[str, ...] = ()
    """Its hosts besides that of `url`; `*` is a region or an account."""
    prefixes: tuple[Prefix, ...] = ()
    """What the paths of its API begin with."""
    own_paths: str = ""
    """The beginnings of paths that no other provider has, as a regular expression: requests without a
    route go there.
    """
    own_header: bytes = b""
    """A request field that no other provider has."""
    key_header: bytes = b""
    """The request field of a key, without one it is a Bearer token."""
    bearers: tuple[str, ...] = ()
    """Of the variables of keys, those of Bearer tokens where a key has a field of its own."""

    @property
    def signed(self) -> bool:
        """Whether its requests are signed for AWS."""
        return bool(self.regional)

    def url_in(self, environ: Mapping[str, str]) -> str | None:
        """The URL; for AWS in the region named by the environment."""
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        if self.url is None and self.regional and region and _REGION.fullmatch(region):
            return self.regional.replace("REGION", region)
        return self.url


# The suffixes differ because some SDKs append the version to their base URL and others do not.
# The prefixes are those of the providers' references. Bedrock has no version in its paths. Azure's host
# may be any gateway, Perplexity has endpoints with and without /v1, DeepSeek all of them both ways: for
# these only a doubled prefix, or an endpoint that exists below /v1 alone, is known to be wrong.
# Names ending in API_BASE are LiteLLM's; LangChain reads OPENAI_API_BASE too.
_ALL = (
    Provider(
        "openai",
        "https://api.openai.com",
        variables=(("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
        keys=(("OPENAI_API_KEY",),),
        prefixes=(_prefix_at("/v1", _OPENAI_ENDPOINTS),),
        # /v1/chat alone is Cohere's.
        own_paths=rf"/v1/(?:(?:{_OPENAI_PATHS})(?:/|\Z)|chat/completions)",
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "anthropic",
        (("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), ("ANTHROPIC_API_URL", "")),
        keys=(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),),
        prefixes=(_prefix_at("/v1", "complete files messages models skills"),),
        # Its SDK renews tokens at /oauth.
        own_paths=r"/v1/(?:complete|messages|oauth)(?:/|\Z)",
        own_header=b"anthropic-version",
        key_header=b"x-api-key",
        bearers=("ANTHROPIC_AUTH_TOKEN",),
    ),
    # https://RESOURCE.openai.azure.com
    Provider(
        "azure",
        None,
        variables=(("AZURE_OPENAI_ENDPOINT", ""), ("AZURE_API_BASE", "")),
        keys=(("AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_AD_TOKEN"),),
        further_keys=("AZURE_API_KEY",),
        hosts=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
        prefixes=(_prefix_at("/openai/v1"), _prefix_at("/openai")),
        key_header=b"api-key",
        bearers=("AZURE_OPENAI_AD_TOKEN",),
    ),
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "gemini",
        (("GOOGLE_GEMINI_BASE_URL", ""), ("GEMINI_API_BASE", "/v1beta")),
        keys=(("GEMINI_API_KEY", "GOOGLE_API_KEY"),),
        further_keys=("GOOGLE_GENERATIVE_AI_API_KEY",),
        prefixes=(
            _prefix_at(
                "/v1beta",
                "batches cachedContents corpora fileSearchStores files models tunedModels",
            ),
            _prefix_at("/v1"),
            _prefix_at("/v1alpha"),
        ),
        # google-genai 3 asks for /v1/, earlier ones for /v1beta/; uploads go below /upload/. The verbs
        # are named since OpenAI's fine-tuned models have colons too.
        own_paths=r"/(?:(?:upload|download)/)?v1(?:beta|alpha)\d*(?:/|\Z)"
        r"|/v1/(?:tunedModels|cachedContents)(?:/|\Z)"
        r"|/v1/models/[^/]+(?::|%3[aA])(?:\w*(?:Contents?|Tokens)|predict\w*)\Z",
        own_header=b"x-goog-api-key",
        key_header=b"x-goog-api-key",
    ),
    Provider(
        "vertex",
        "https://aiplatform.googleapis.com",
        "gemini",
        (("GOOGLE_VERTEX_BASE_URL", ""), ("ANTHROPIC_VERTEX_BASE_URL", "/v1")),
        hosts=("*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com"),
        prefixes=(_prefix_at("/v1", "projects publishers"), _prefix_at("/v1beta1")),
    ),
    Provider(
        "bedrock",
        None,
        "bedrock",
        (
            ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", ""),
            ("AWS_BEDROCK_RUNTIME_ENDPOINT", ""),
            ("ANTHROPIC_BEDROCK_BASE_URL", ""),
        ),
        keys=(
            ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"),
        ),
        regional="https://bedrock-runtime.REGION.amazonaws.com",
        hosts=(
            *("bedrock-runtime.*.amazonaws.com", "bedrock-runtime-fips.*.amazonaws.com"),
            "bedrock-runtime.*.amazonaws.com.cn",
        ),
        bearers=("AWS_BEARER_TOKEN_BEDROCK",),
    ),
    Provider(
        "mistral",
        "https://api.mistral.ai",
        variables=(("MISTRAL_API_BASE", "/v1"), ("MISTRAL_AZURE_API_BASE", "/v1")),
        keys=(("MISTRAL_API_KEY",),),
        prefixes=(_prefix_at("/v1", _OPENAI_ENDPOINTS),),
    ),
    Provider(
        "groq",
        "https://api.groq.com",
        variables=(("GROQ_BASE_URL", ""), ("GROQ_API_BASE", "/openai/v1")),
        keys=(("GROQ_API_KEY",),),
        prefixes=(_prefix_at("/openai/v1", _CHAT_ENDPOINTS),),
    ),
    Provider(
        "cohere",
        "https://api.cohere.com",
        "cohere",
        (("CO_API_URL", ""),),
        keys=(("CO_API_KEY", "COHERE_API_KEY"),),
        further_keys=("COHERE_API_KEY",),
        prefixes=(
            _prefix_at("/v2"),
            _prefix_at(
                "/v1",
                "check-api-key classify connectors datasets detokenize embed-jobs models tokenize",
            ),
        ),
    ),
    Provider(
        "together",
        "https://api.together.ai",
        variables=(("TOGETHER_BASE_URL", ""), ("TOGETHER_AI_API_BASE", "/v1")),
        keys=(("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"),),
        further_keys=(
            "TOGETHERAI_API_KEY",
            "TOGETHER_AI_API_KEY",
        ),
        hosts=("api.together.xyz",),
        prefixes=(_prefix_at("/v1", _OPENAI_ENDPOINTS),),
    ),
    # The SDK's default base has no path; with a custom base the SDK asks for /v1/chat/completions.
    Provider(
        "fireworks",
        "https://api.fireworks.ai",
        variables=(("FIREWORKS_BASE_URL", "/inference"), ("FIREWORKS_API_BASE", "/inference/v1")),
        keys=(("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),),
        further_keys=("FIREWORKS_AI_API_KEY",),
        prefixes=(
            _prefix_at("/inference/v1", "audio chat completions embeddings rerank responses"),
        ),
    ),
    Provider(
        "cerebras",
        "https://api.cerebras.ai",
        variables=(("CEREBRAS_BASE_URL", ""), ("CEREBRAS_API_BASE", "/v1")),
        keys=(("CEREBRAS_API_KEY",),),
        prefixes=(_prefix_at("/v1", "chat completions models"),),
    ),
    Provider(
        "perplexity",
        "https://api.perplexity.ai",
        variables=(("PERPLEXITY_BASE_URL", ""), ("PERPLEXITY_API_BASE", "")),
        keys=(("PERPLEXITY_API_KEY", "PPLX_API_KEY"),),
        further_keys=(
            "PERPLEXITYAI_API_KEY",
            "PPLX_API_KEY",
        ),
        prefixes=(_prefix_at("/v1", "agent embeddings responses"),),
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai",
        variables=(("OPENROUTER_API_BASE", "/api/v1"),),
        keys=(("OPENROUTER_API_KEY",),),
        # The host also has web pages, such as /models and /chat.
        prefixes=(
            _prefix_at(
                "/api/v1",
                "chat/completions completions credits embeddings key messages responses",
            ),
        ),
    ),
    Provider(
        "deepseek",
        "https://api.deepseek.com",
        variables=(("DEEPSEEK_API_BASE", "/beta"),),
        keys=(("DEEPSEEK_API_KEY",),),
        prefixes=(_prefix_at("/v1"), _prefix_at("/beta")),
    ),
    Provider(
        "xai",
        "https://api.x.ai",
        variables=(("XAI_API_BASE", "/v1"),),
        keys=(("XAI_API_KEY",),),
        prefixes=(_prefix_at("/v1", f"{_CHAT_ENDPOINTS} language-models messages tokenize-text"),),
    ),
    Provider(
        "ollama",
        "http://127.0.0.1:11434",
        "ollama",
        (("OLLAMA_HOST", ""), ("OLLAMA_API_BASE", "")),
        # Both have /embeddings.
        prefixes=(
            _prefix_at("/api", "copy create delete embed generate ps pull push show tags version"),
            _prefix_at("/v1", "chat/completions completions models responses"),
        ),
        own_paths=r"/api/(?:blobs|chat|copy|create|delete|embed|embeddings|generate|ps|pull|push|show"
        r"|tags|version)(?:/|\Z)",
    ),
    Provider(
        "voyage",
        "https://api.voyageai.com",
        keys=(("VOYAGE_API_KEY",),),
        prefixes=(
            _prefix_at(
                "/v1", "batches contextualizedembeddings embeddings multimodalembeddings rerank"
            ),
        ),
    ),
    Provider(
        "huggingface",
        "https://router.huggingface.co",
        variables=(("HF_INFERENCE_ENDPOINT", "/hf-inference"),),
        keys=(("HF_TOKEN", "HUGGINGFACE_API_KEY"),),
        further_keys=("HUGGINGFACE_API_KEY",),
        # Other first segments are names of providers behind the router.
        prefixes=(_prefix_at("/v1", "chat/completions responses"),),
    ),
)

PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
