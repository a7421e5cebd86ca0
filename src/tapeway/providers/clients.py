"""Clients without an environment variable for the base URL, and the code to write instead.

Read in the packages: @ai-sdk/google 3.0 and siblings, mistralai 3.7 (Python) and 2.7 (npm),
cohere-ai 8.1, voyageai 0.5, openai-agents 0.24 (Python) and @openai/agents 0.20.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientWithoutVariable:
    """A client of a provider; `{url}` in `instead` stands for the URL of the provider's route."""

    provider: str
    name: str
    instead: str


def _ai_sdk(provider: str, package: str, function: str, path: str) -> ClientWithoutVariable:
    return ClientWithoutVariable(
        provider, f"@ai-sdk/{package}", f'{function}({{ baseURL: "{{url}}{path}" }})'
    )


CLIENTS_WITHOUT_VARIABLE = (
    ClientWithoutVariable(
        "openai",
        "The OpenAI Agents SDK sends its traces past the proxy, to api.openai.com",
        "OPENAI_AGENTS_DISABLE_TRACING=1",
    ),
    _ai_sdk("gemini", "google", "createGoogleGenerativeAI", "/v1beta"),
    _ai_sdk(
        *("vertex", "google-vertex", "createVertex"),
        "/v1beta1/projects/PROJECT/locations/REGION/publishers/google",
    ),
    _ai_sdk("azure", "azure", "createAzure", "/openai"),
    _ai_sdk("mistral", "mistral", "createMistral", "/v1"),
    ClientWithoutVariable("mistral", "mistralai (Python)", 'Mistral(server_url="{url}")'),
    ClientWithoutVariable("mistral", "@mistralai/mistralai", 'new Mistral({ serverURL: "{url}" })'),
    _ai_sdk("groq", "groq", "createGroq", "/openai/v1"),
    _ai_sdk("cohere", "cohere", "createCohere", "/v2"),
    ClientWithoutVariable("cohere", "cohere-ai", 'new CohereClient({ baseUrl: "{url}" })'),
    _ai_sdk("together", "togetherai", "createTogetherAI", "/v1"),
    _ai_sdk("fireworks", "fireworks", "createFireworks", "/inference/v1"),
    _ai_sdk("perplexity", "perplexity", "createPerplexity", ""),
    _ai_sdk("deepseek", "deepseek", "createDeepSeek", ""),
    _ai_sdk("xai", "xai", "createXai", "/v1"),
    ClientWithoutVariable("voyage", "voyageai (Python)", 'Client(base_url="{url}/v1")'),
)
