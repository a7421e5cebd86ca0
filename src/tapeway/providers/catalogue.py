"""The providers with a built-in route."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["openai", "anthropic", "gemini", "bedrock", "cohere", "ollama"]
"""The API whose requests, streams and errors a provider uses."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A built-in route.

    `url` is None where it depends on the account. `variables` are the environment variables of the
    SDKs for their base URL, each with the path to append to the route's URL.
    """

    name: str
    url: str | None
    dialect: Dialect = "openai"
    variables: tuple[tuple[str, str], ...] = ()


# The suffixes differ because some SDKs append the version to their base URL and others do not.
# Names ending in API_BASE are LiteLLM's; LangChain reads OPENAI_API_BASE too.
_ALL = (
    Provider(
        "openai",
        "https://api.openai.com",
        variables=(("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "anthropic",
        (("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), ("ANTHROPIC_API_URL", "")),
    ),
    # https://RESOURCE.openai.azure.com
    Provider("azure", None, variables=(("AZURE_OPENAI_ENDPOINT", ""), ("AZURE_API_BASE", ""))),
    Provider(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "gemini",
        (("GOOGLE_GEMINI_BASE_URL", ""), ("GEMINI_API_BASE", "/v1beta")),
    ),
    Provider(
        "vertex",
        "https://aiplatform.googleapis.com",
        "gemini",
        (("GOOGLE_VERTEX_BASE_URL", ""), ("ANTHROPIC_VERTEX_BASE_URL", "/v1")),
    ),
    # https://bedrock-runtime.REGION.amazonaws.com
    Provider(
        "bedrock",
        None,
        "bedrock",
        (
            ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", ""),
            ("AWS_BEDROCK_RUNTIME_ENDPOINT", ""),
            ("ANTHROPIC_BEDROCK_BASE_URL", ""),
        ),
    ),
    Provider(
        "mistral",
        "https://api.mistral.ai",
        variables=(("MISTRAL_API_BASE", "/v1"), ("MISTRAL_AZURE_API_BASE", "/v1")),
    ),
    Provider(
        "groq",
        "https://api.groq.com",
        variables=(("GROQ_BASE_URL", ""), ("GROQ_API_BASE", "/openai/v1")),
    ),
    Provider("cohere", "https://api.cohere.com", "cohere", (("CO_API_URL", ""),)),
    Provider(
        "together",
        "https://api.together.ai",
        variables=(("TOGETHER_BASE_URL", ""), ("TOGETHER_AI_API_BASE", "/v1")),
    ),
    # The SDK's own base has no path, but with another base it asks for /v1/chat/completions.
    Provider(
        "fireworks",
        "https://api.fireworks.ai",
        variables=(("FIREWORKS_BASE_URL", "/inference"), ("FIREWORKS_API_BASE", "/inference/v1")),
    ),
    Provider(
        "cerebras",
        "https://api.cerebras.ai",
        variables=(("CEREBRAS_BASE_URL", ""), ("CEREBRAS_API_BASE", "/v1")),
    ),
    Provider(
        "perplexity",
        "https://api.perplexity.ai",
        variables=(("PERPLEXITY_BASE_URL", ""), ("PERPLEXITY_API_BASE", "")),
    ),
    Provider(
        "openrouter", "https://openrouter.ai", variables=(("OPENROUTER_API_BASE", "/api/v1"),)
    ),
    Provider("deepseek", "https://api.deepseek.com", variables=(("DEEPSEEK_API_BASE", "/beta"),)),
    Provider("xai", "https://api.x.ai", variables=(("XAI_API_BASE", "/v1"),)),
    Provider(
        "ollama",
        "http://127.0.0.1:11434",
        "ollama",
        (("OLLAMA_HOST", ""), ("OLLAMA_API_BASE", "")),
    ),
    Provider("voyage", "https://api.voyageai.com"),
    Provider(
        "huggingface",
        "https://router.huggingface.co",
        variables=(("HF_INFERENCE_ENDPOINT", "/hf-inference"),),
    ),
)

PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
