"""What Gemini's Live API knows, for its fake: the members of its messages, and what a declared function may say."""

import re
from typing import Any

from gemini_fake import Refused

FIELDS: dict[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "client": "setup clientContent realtimeInput toolResponse",
        "setup": "model generationConfig systemInstruction tools realtimeInputConfig sessionResumption safetySettings"
        " contextWindowCompression inputAudioTranscription outputAudioTranscription proactivity historyConfig",
        "generation": "candidateCount maxOutputTokens temperature topP topK presencePenalty frequencyPenalty seed"
        " responseModalities speechConfig mediaResolution thinkingConfig enableAffectiveDialog",
        "speech": "voiceConfig languageCode",
        "voice": "prebuiltVoiceConfig",
        "prebuilt": "voiceName",
        "resumption": "handle",
        "compression": "triggerTokens slidingWindow",
        "transcription": "",
        "proactivity": "proactiveAudio",
        "realtime": "automaticActivityDetection activityHandling turnCoverage",
        "detection": "disabled startOfSpeechSensitivity endOfSpeechSensitivity prefixPaddingMs silenceDurationMs",
        "history": "initialHistoryInClientContent",
        "content": "role parts",
        "clientContent": "turns turnComplete",
        "realtimeInput": "audio video text activityStart activityEnd audioStreamEnd",
        "inlineData": "mimeType data",
        "toolResponse": "functionResponses",
        "functionResponse": "id name response willContinue scheduling parts",
        "tool": "functionDeclarations googleSearch",
        "declaration": "name description behavior parameters parametersJsonSchema",
        "schema": "type format title description nullable enum maxItems minItems properties required minProperties"
        " maxProperties minLength maxLength pattern example anyOf propertyOrdering default items minimum maximum",
        "server": "setupComplete serverContent toolCall toolCallCancellation goAway sessionResumptionUpdate usageMetadata"
        " voiceActivity",
        "serverContent": "modelTurn turnComplete interrupted generationComplete inputTranscription outputTranscription"
        " groundingMetadata turnCompleteReason waitingForInput interactionStatus urlContextMetadata",
    }.items()
}

_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"})
_FORMATS = {"STRING": {"date-time", "enum"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}


_OPAQUE = frozenset({"args", "response", "parameters", "parametersJsonSchema"})


def plain(value: Any) -> Any:
    """`value` with member names in camel case and bytes in standard base64, for the API takes two spellings of both."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for name, inner in value.items():
        first, *more = name.split("_")
        known = first + "".join(w.capitalize() for w in more)
        if known in ("data", "thoughtSignature") and isinstance(inner, str):
            inner = inner.replace("-", "+").replace("_", "/")
        out[known] = inner if known in _OPAQUE else plain(inner)
    return out


def is_new(name: str) -> bool:
    """Whether the API treats a model as one of Gemini 3. 1008 for one without live sessions."""
    if not re.search(r"live|native-audio", name):
        raise Refused(
            f"models/{name} is not found for API version v1beta, or is not supported for bidiGenerateContent."
        )
    return re.match(r"gemini-(live-)?[12]\.", name) is None


def check_declarations(tools: Any, *, new: bool) -> None:
    names: list[str] = []
    for tool in tools:
        for name in tool.keys() - FIELDS["tool"]:
            raise Refused(f"Unknown name \"{name}\" at 'setup.tools': Cannot find field.")
        for declaration in tool.get("functionDeclarations", []):
            if unknown := declaration.keys() - FIELDS["declaration"]:
                raise Refused(f"Unknown name {unknown} at 'function_declarations': Cannot find field.")
            if not re.fullmatch(r"[A-Za-z_][\w.:-]{0,63}", declaration["name"]):
                raise Refused(f"Invalid function name {declaration['name']!r}")
            if "parametersJsonSchema" in declaration and not new:
                raise Refused("this model would call the function without arguments")  # the real one says nothing
            if "parameters" in declaration:
                check_schema(declaration["parameters"], "parameters")
                if declaration["parameters"]["type"] != "OBJECT" or not declaration["parameters"].get("properties"):
                    raise Refused("parameters.properties: should be non-empty for OBJECT type")
            names.append(declaration["name"])
    if len(set(names)) != len(names):
        raise Refused("Duplicate function declaration found")


def check_schema(schema: Any, where: str) -> None:
    """Refused for what is no Schema of the API."""
    if unknown := schema.keys() - FIELDS["schema"]:
        raise Refused(f"Unknown name {sorted(unknown)} at '{where}': Cannot find field.")
    for i, branch in enumerate(schema.get("anyOf", [])):
        check_schema(branch, f"{where}.any_of[{i}]")
    if "anyOf" in schema:
        return
    kind = schema.get("type")
    if kind not in _TYPES:
        raise Refused(f"{where}.type: must be specified")
    if "format" in schema and schema["format"] not in _FORMATS.get(kind, ()):
        raise Refused(f"{where}.format: {schema['format']} is not supported for {kind}")
    if "enum" in schema and (kind != "STRING" or not all(isinstance(v, str) and v for v in schema["enum"])):
        raise Refused(f"{where}.enum: only allowed for STRING type, and with words")
    if kind == "ARRAY":
        if "items" not in schema:
            raise Refused(f"{where}.items: missing field.")
        check_schema(schema["items"], f"{where}.items")
    for name, member in schema.get("properties", {}).items():
        check_schema(member, f"{where}.properties[{name}]")
    if any(name not in schema.get("properties", {}) for name in schema.get("required", [])):
        raise Refused(f"{where}.required: property is not defined")
