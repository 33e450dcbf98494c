"""The provider of a model, by the host's name: the well-known values of `gen_ai.provider.name`."""

from typing import Final

_BY_HOST: Final = (
    ("", "openai.azure.com", "azure.ai.openai"),
    ("inference", "ai.azure.com", "azure.ai.inference"),
    ("", "openai.com", "openai"),
    ("", "anthropic.com", "anthropic"),
    ("bedrock", "amazonaws.com", "aws.bedrock"),
    ("aiplatform", "googleapis.com", "gcp.vertex_ai"),
    ("generativelanguage", "googleapis.com", "gcp.gemini"),
    ("", "cohere.com", "cohere"),
    ("", "cohere.ai", "cohere"),
    ("", "deepseek.com", "deepseek"),
    ("", "groq.com", "groq"),
    ("", "ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("", "mistral.ai", "mistral_ai"),
    ("", "perplexity.ai", "perplexity"),
    ("", "x.ai", "x_ai"),
)
"""A word in the name, the end of the name, the provider."""


def provider_of(address: str) -> str:
    """Return the provider of a host's name; `"openai"` for an unknown one: most are gateways with OpenAI's wire format.

    *Limits*: the name proves nothing: behind a gateway any model may answer.
    """
    host = address.lower().rstrip(".")
    found = (provider for word, end, provider in _BY_HOST if word in host and f".{host}".endswith(f".{end}"))
    return next(found, "openai")
