"""The providers with a built-in route."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_REGION = re.compile(r"[a-z0-9-]{1,40}")
Dialect = Literal["openai", "anthropic", "gemini", "bedrock", "cohere", "ollama"]
"""The API whose requests, streams and errors a provider uses."""


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
# Names ending in API_BASE are LiteLLM's; LangChain reads OPENAI_API_BASE too.
_ALL = (
    Provider(
        "openai",
        "https://api.openai.com",
        variables=(("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
        keys=(("OPENAI_API_KEY",),),
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "anthropic",
        (("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), ("ANTHROPIC_API_URL", "")),
        keys=(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),),
    ),
    # https://RESOURCE.openai.azure.com
    Provider(
        "azure",
        None,
        variables=(("AZURE_OPENAI_ENDPOINT", ""), ("AZURE_API_BASE", "")),
        keys=(("AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_AD_TOKEN"),),
        further_keys=("AZURE_API_KEY",),
        hosts=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
    ),
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "gemini",
        (("GOOGLE_GEMINI_BASE_URL", ""), ("GEMINI_API_BASE", "/v1beta")),
        keys=(("GEMINI_API_KEY", "GOOGLE_API_KEY"),),
        further_keys=("GOOGLE_GENERATIVE_AI_API_KEY",),
    ),
    Provider(
        "vertex",
        "https://aiplatform.googleapis.com",
        "gemini",
        (("GOOGLE_VERTEX_BASE_URL", ""), ("ANTHROPIC_VERTEX_BASE_URL", "/v1")),
        hosts=("*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com"),
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
    ),
    Provider(
        "mistral",
        "https://api.mistral.ai",
        variables=(("MISTRAL_API_BASE", "/v1"), ("MISTRAL_AZURE_API_BASE", "/v1")),
        keys=(("MISTRAL_API_KEY",),),
    ),
    Provider(
        "groq",
        "https://api.groq.com",
        variables=(("GROQ_BASE_URL", ""), ("GROQ_API_BASE", "/openai/v1")),
        keys=(("GROQ_API_KEY",),),
    ),
    Provider(
        "cohere",
        "https://api.cohere.com",
        "cohere",
        (("CO_API_URL", ""),),
        keys=(("CO_API_KEY", "COHERE_API_KEY"),),
        further_keys=("COHERE_API_KEY",),
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
    ),
    # The SDK's default base has no path; with a custom base the SDK asks for /v1/chat/completions.
    Provider(
        "fireworks",
        "https://api.fireworks.ai",
        variables=(("FIREWORKS_BASE_URL", "/inference"), ("FIREWORKS_API_BASE", "/inference/v1")),
        keys=(("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),),
        further_keys=("FIREWORKS_AI_API_KEY",),
    ),
    Provider(
        "cerebras",
        "https://api.cerebras.ai",
        variables=(("CEREBRAS_BASE_URL", ""), ("CEREBRAS_API_BASE", "/v1")),
        keys=(("CEREBRAS_API_KEY",),),
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
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai",
        variables=(("OPENROUTER_API_BASE", "/api/v1"),),
        keys=(("OPENROUTER_API_KEY",),),
    ),
    Provider(
        "deepseek",
        "https://api.deepseek.com",
        variables=(("DEEPSEEK_API_BASE", "/beta"),),
        keys=(("DEEPSEEK_API_KEY",),),
    ),
    Provider(
        "xai", "https://api.x.ai", variables=(("XAI_API_BASE", "/v1"),), keys=(("XAI_API_KEY",),)
    ),
    Provider(
        "ollama",
        "http://127.0.0.1:11434",
        "ollama",
        (("OLLAMA_HOST", ""), ("OLLAMA_API_BASE", "")),
    ),
    Provider("voyage", "https://api.voyageai.com", keys=(("VOYAGE_API_KEY",),)),
    Provider(
        "huggingface",
        "https://router.huggingface.co",
        variables=(("HF_INFERENCE_ENDPOINT", "/hf-inference"),),
        keys=(("HF_TOKEN", "HUGGINGFACE_API_KEY"),),
        further_keys=("HUGGINGFACE_API_KEY",),
    ),
)

PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
