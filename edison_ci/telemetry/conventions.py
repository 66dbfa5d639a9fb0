"""Names of the OpenTelemetry conventions for generative AI, which are still in development.

https://github.com/open-telemetry/semantic-conventions-genai has them. Names that begin with
`edison.` are our own.
"""

from __future__ import annotations

# --- operations -----------------------------------------------------------------------------------

CHAT = "chat"
EMBEDDINGS = "embeddings"

PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Providers of models.yaml that have another name in the conventions."""

# --- attributes -----------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
OUTPUT_TYPE = "gen_ai.output.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOKEN_TYPE = "gen_ai.token.type"
ERROR_TYPE = "error.type"

PARAMETERS = {
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "seed": ("gen_ai.request.seed", int),
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
}
"""Parameters of a call that have an attribute, and its type."""

# --- events and metrics ---------------------------------------------------------------------------

EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"

DURATION = "gen_ai.client.operation.duration"
DURATION_BUCKETS_S = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKENS = "gen_ai.client.token.usage"
TOKENS_BUCKETS = tuple(4**power for power in range(14))

# --- our own --------------------------------------------------------------------------------------

RUN_ID = "edison.run.id"
EXPERIMENT = "edison.experiment"
TRIGGER = "edison.trigger"
STATUS = "edison.status"
CELL_ID = "edison.cell.id"
CASE = "edison.case"
PROMPT = "edison.prompt"
MODEL = "edison.model"
SIDE = "edison.side"
REPEAT = "edison.repeat"
PHASE = "edison.phase"
SCORE = "edison.score"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable with which texts are sent too; the one that other instrumentations use."""
