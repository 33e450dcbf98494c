"""The chat decoder: chunks, the end of a stream, errors inside it, and what is not a chat stream at all."""

import json
import pickle
from typing import Any

import pytest

from streamguard._sse import ChatDecoder, Chunk, Event, EventClient
from streamguard.errors import InStreamError, MalformedChunkError

STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
HELLO = '{"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}'


def event(data: str, name: str = "message") -> Event:
    made = Event()
    made.event, made.data = name, data
    return made


def decode(data: str, name: str = "message") -> Chunk | None:
    return ChatDecoder().decode(event(data, name))


def error_of(frame: Any, name: str = "message") -> InStreamError:
    with pytest.raises(InStreamError) as caught:
        decode(frame if isinstance(frame, str) else json.dumps(frame), name)
    return caught.value


def finished_after(*choices: dict[str, Any]) -> bool:
    decoder = ChatDecoder()
    for choice in choices:
        decoder.decode(event(json.dumps({"choices": [choice]})))
    return decoder.finished


def test_a_chunk_is_what_the_server_sent() -> None:
    """The object is handed over unchanged, as a dict with properties."""
    chunk = decode(HELLO)
    assert chunk == json.loads(HELLO)
    assert type(chunk) is Chunk
    assert chunk.text == "hello"


@pytest.mark.parametrize("name", ["message", "chunk", "completion", "delta"])
@pytest.mark.parametrize("data", [f" {HELLO}", f"{HELLO} \n", f"\t{HELLO}\n", HELLO.replace(",", ",\n"), HELLO])
def test_blanks_around_the_json_and_event_names_do_not_matter(data: str, name: str) -> None:
    """JSON spread over several data lines, blanks around it and a name for the event are all fine (B066)."""
    assert decode(data, name) == json.loads(HELLO)


@pytest.mark.parametrize("data", ["[DONE]", " [DONE]", "[DONE] ", "\t[DONE]\t", "[DONE]\n", "\n[DONE]", '"[DONE]"'])
def test_the_end_marker_is_read_whatever_stands_around_it(data: str) -> None:
    """It is compared after stripping, hands over nothing, and ends the decoding (B064)."""
    decoder = ChatDecoder()
    assert decoder.decode(event(data)) is None
    assert decoder.done
    assert not decoder.finished
    assert decoder.decode(event(HELLO)) is None
    assert decoder.decode(event("not JSON")) is None


@pytest.mark.parametrize("stream", [b"data:[DONE]\n\n", b"data: [DONE]\r\r", b"data:  [DONE] \r\n\r\n"])
def test_the_end_marker_on_the_wire(stream: bytes) -> None:
    """With or without the space, with any line end (B063, B064)."""
    decoder = ChatDecoder()
    (only,) = EventClient().feed(stream)
    assert decoder.decode(only) is None
    assert decoder.done


@pytest.mark.parametrize("data", ["[done]", "DONE", "[DONE", "[DONE][DONE]", '["[DONE]"]', "[DONE].", '{"x":"[DONE]"'])
def test_what_only_resembles_the_end_marker_is_malformed(data: str) -> None:
    """Nothing else ends a stream."""
    decoder = ChatDecoder()
    with pytest.raises(MalformedChunkError):
        decoder.decode(event(data))
    assert not decoder.done


@pytest.mark.parametrize("data", ["", " ", "\n", "\t\n "])
def test_empty_data_is_nothing(data: str) -> None:
    """Events without data are not parsed (B065)."""
    assert decode(data) is None


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [], "usage": {"total_tokens": 3}},
        {"type": "ping"},
        {"a": [1]},
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"message": "hi"},
        {"code": 500},
        {"status": 200},
        {"message": "fine", "code": 0},
        {"message": "fine", "code": "200"},
        {"detail": ""},
        {"detail": "x", "id": 1},
        {"type": "status", "message": "queued"},
        {"errors": []},
        {"object": "chat.completion.chunk"},
        {"done": True},
    ],
)
def test_unknown_objects_are_handed_over_as_they_are(frame: dict[str, Any]) -> None:
    """No choices, no known error, no known other API: delivered raw (B082)."""
    assert decode(json.dumps(frame)) == frame


class TestFinished:
    """`finished`: every choice seen so far has a finish reason."""

    def test_needs_a_choice(self) -> None:
        """Nothing, heartbeats and usage are no end."""
        decoder = ChatDecoder()
        for data in ("{}", '{"choices":[]}', '{"choices":[],"usage":{"total_tokens":1}}'):
            decoder.decode(event(data))
        assert not decoder.finished

    @pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "eos", "function_call"])
    def test_any_reason_is_an_end(self, reason: str) -> None:
        """Known or not, and it stays one when a usage chunk or a late empty chunk follows."""
        assert finished_after({"index": 0, "delta": {}}, {"index": 0, "delta": {}, "finish_reason": reason})
        assert finished_after({"delta": {}, "finish_reason": reason}, {"delta": {}, "finish_reason": None})

    @pytest.mark.parametrize("reason", [None, "", 0, False, 1, {}, []])
    def test_null_empty_and_misshapen_reasons_are_none(self, reason: Any) -> None:
        """Some servers send the empty string in every chunk."""
        assert not finished_after({"index": 0, "delta": {"content": "x"}, "finish_reason": reason})

    def test_every_choice_counts(self) -> None:
        """With n = 2 one finished choice is half an answer."""
        first, second = ({"index": n, "delta": {}} for n in (0, 1))
        ends = [{**first, "finish_reason": "stop"}, {**second, "finish_reason": "stop"}]
        assert not finished_after(first, second, ends[1])
        assert not finished_after(ends[0], second)
        assert finished_after(first, second, *ends)

    def test_choices_in_one_chunk_are_all_seen(self) -> None:
        """Both entries of one list count, broken entries do not."""
        decoder = ChatDecoder()
        decoder.decode(event('{"choices":[null,{"index":0,"finish_reason":"stop"},{"index":1,"delta":null},"x"]}'))
        assert not decoder.finished
        decoder.decode(event('{"choices":[{"index":1,"finish_reason":"length"}]}'))
        assert decoder.finished


class TestErrorFrames:
    """Errors inside a 200 stream are raised, never handed over as text (B075)."""

    @pytest.mark.parametrize(
        ("frame", "message", "kind", "code"),
        [
            ({"error": {"message": "m", "type": "GatewayTimeout", "code": 504}}, "m", "GatewayTimeout", 504),
            ({"error": {"message": "m", "type": "t", "code": "rate_limit"}}, "m", "t", "rate_limit"),
            ({"error": {"message": "m", "code": "504"}}, "m", None, "504"),
            ({"error": {"message": "m", "code": None}}, "m", None, None),
            ({"error": {"message": "m", "code": True}}, "m", None, None),
            ({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}, "m", "RESOURCE_EXHAUSTED", 429),
            ({"error": {"message": {"text": 1}}, "id": "x"}, '{"error": {"message": {"text": 1}}, "id": "x"}', None, None),
            ({"error": {"detail": "m"}, "status": 503}, "m", None, 503),
            ({"error": {"error": {"message": "m"}}}, "m", None, None),
            ({"error": "m"}, "m", None, None),
            ({"error": "m", "error_type": "overloaded"}, "m", "overloaded", None),
            ({"error": "server_error", "message": "m"}, "server_error: m", None, None),
            ({"error": True, "message": "m"}, "m", None, None),
            ({"error": 500}, '{"error": 500}', None, 500),
            ({"error": {"message": "", "type": None}}, '{"error": {"message": "", "type": null}}', None, None),
            ({"object": "error", "message": "m", "type": "BadRequestError", "code": 40303}, "m", "BadRequestError", 40303),
            ({"object": "error", "message": "m"}, "m", None, None),
            ({"type": "error", "message": "m", "code": "c", "param": None}, "m", "error", "c"),
            ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "m", "overloaded_error", None),
            ({"type": "error"}, '{"type": "error"}', "error", None),
            (
                {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}},
                "m",
                "response.failed",
                "server_error",
            ),
            ({"type": "response.failed", "response": {"error": None}}, "the response failed", "response.failed", None),
            ({"type": "response.failed"}, "the response failed", "response.failed", None),
            ({"detail": "m"}, "m", None, None),
            ({"detail": [{"loc": ["body"], "msg": "m"}]}, "m", None, None),
            ({"detail": {"message": "m"}}, "m", None, None),
            ({"title": "t", "detail": "m", "status": 500}, "m", None, 500),
            ({"message": "m", "code": "c"}, "m", None, "c"),
            ({"message": "m", "code": 503, "type": "t"}, "m", "t", 503),
            ({"message": "m", "type": "t", "param": None, "code": None}, "m", "t", None),
            ({"message": "", "code": 500}, '{"message": "", "code": 500}', None, 500),
            ({"msg": "m", "code": 1302}, "m", None, 1302),
            ({"message": "m", "statusCode": 500}, "m", None, 500),
            ({"message": "m", "status": "error"}, "m", "error", None),
            ({"errors": [{"message": "m", "code": 1000}]}, "m", None, 1000),
            ({"errors": ["m", "n"]}, "m", None, None),
            ({"success": False, "errors": [{"code": "c", "message": "m"}], "result": None}, "m", None, "c"),
        ],
    )
    def test_shapes(self, frame: dict[str, Any], message: str, kind: str | None, code: str | int | None) -> None:
        """Each shape gives the server's message, its type and its code as they came, and the raw frame (B081, B082)."""
        error = error_of(frame)
        assert (error.message, error.type, error.code, error.body) == (message, kind, code, json.dumps(frame))
        assert type(error.code) is type(code)

    @pytest.mark.parametrize(
        "choices", [None, [], [{"delta": {"content": "x"}}], [{"delta": {}, "finish_reason": "error"}]]
    )
    @pytest.mark.parametrize(
        "error",
        [
            {"error": {"code": 502, "message": "m"}},
            {"error": "m"},
            {"errors": [{"message": "m"}]},
            {"object": "error", "message": "m"},
            {"type": "error", "message": "m"},
        ],
    )
    def test_choices_do_not_hide_an_error(self, error: dict[str, Any], choices: Any) -> None:
        """An error beside choices, even with text in them, is an error (B083)."""
        assert error_of({**error, "choices": choices}).message == "m"

    def test_the_finish_reason_error(self) -> None:
        """`finish_reason: "error"` alone is an error, in any choice; an error inside the choice explains it."""
        assert "finish_reason 'error'" in error_of({"choices": [{"delta": {}, "finish_reason": "error"}]}).message
        second = [{"index": 0, "delta": {}}, {"index": 1, "delta": {}, "finish_reason": "error"}]
        assert "finish_reason" in error_of({"choices": second}).message
        told = {"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "m"}}
        assert (error_of({"choices": [told]}).message, error_of({"choices": [told]}).code) == ("m", 502)

    @pytest.mark.parametrize("error", [None, {}, "", " ", [], False, 0, {"message": None, "code": None}, {"message": ""}])
    @pytest.mark.parametrize("where", ["error", "errors", "choice"])
    def test_an_empty_error_is_none(self, error: Any, where: str) -> None:
        """Some servers put a null or empty error into every good chunk (B084)."""
        frame = json.loads(HELLO)
        (frame["choices"][0] if where == "choice" else frame)["error" if where == "choice" else where] = error
        assert decode(json.dumps(frame)) == frame

    @pytest.mark.parametrize(
        "text", ["error", '{"error": {"message": "m"}}', "event: error", "finish_reason error", "[DONE]"]
    )
    def test_text_about_errors_is_text(self, text: str) -> None:
        """What the model says is never taken for a fault (B084)."""
        chunk = decode(json.dumps({"choices": [{"delta": {"content": text}}]}))
        assert chunk is not None
        assert chunk.text == text

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ("upstream died", "upstream died"),
            ('{"message": "m"}', "m"),
            ('{"error": {"message": "m"}}', "m"),
            ('{"error": null}', '{"error": null}'),
            ('"m"', "m"),
            ('{"cut', '{"cut'),
            (HELLO, HELLO),
            ("", "the server sent an error event without data"),
            ("[DONE]", "[DONE]"),
        ],
    )
    def test_an_event_named_error_is_one_whatever_its_data(self, data: str, message: str) -> None:
        """JSON, text or nothing (`event: error`); whole or cut by the end of the stream."""
        error = error_of(data, "error")
        assert (error.message, error.body) == (message, data)
        with pytest.raises(InStreamError):
            ChatDecoder().decode_last(event(data, "error"))

    @pytest.mark.parametrize("letter", ["x", "é", "😀"])
    def test_the_kept_body_is_bounded(self, letter: str) -> None:
        """At most 64 KiB of the frame are kept, cut between characters, and the error pickles."""
        error = error_of(json.dumps({"error": {"message": letter * 100_000}}, ensure_ascii=False))
        assert 64 * 1024 - 4 < len(error.body.encode()) <= 64 * 1024
        assert len(error.message.encode()) <= 64 * 1024
        assert pickle.loads(pickle.dumps(error)).body == error.body


class TestMalformed:
    """What is not a chat chunk is refused by a message that says what came and what to do."""

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (": OPENROUTER PROCESSING", "not JSON"),
            ('{"choices":[', "not JSON"),
            ('{"a":1}\n{"b":2}', "not JSON"),
            ("<html>", "not JSON"),
            ("{'a': 1}", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('{"a":' * 100_000, "not JSON"),
            ("9" * 10_000, "not JSON"),
            ("[1]", "a JSON array"),
            ('"text"', "a JSON string"),
            ("17", "a JSON number"),
            ("1.5", "a JSON number"),
            ("true", "a JSON boolean"),
            ("null", "null"),
        ],
    )
    def test_no_json_object(self, data: str, what: str) -> None:
        """Never a bare JSONDecodeError, RecursionError or ValueError (B071)."""
        with pytest.raises(MalformedChunkError, match=f'data is {what}; decode="events"'):
            decode(data)

    @pytest.mark.parametrize("data", ["x" * 1000, "\0" * 1000, "é" * 1000, '"' * 1000, "x\n" * 500])
    def test_at_most_two_hundred_characters_are_quoted(self, data: str) -> None:
        """The quotation is escaped, on one line, and cut visibly."""
        with pytest.raises(MalformedChunkError) as caught:
            decode(data)
        quoted = caught.value.message.split("hands over any event: ")[1]
        assert len(quoted) == 200
        assert quoted.endswith("…")
        assert "\n" not in caught.value.message

    def test_a_short_payload_is_quoted_whole(self) -> None:
        """No ellipsis where nothing was left out."""
        with pytest.raises(MalformedChunkError, match=r": 'x{150}'$"):
            decode("x" * 150)

    @pytest.mark.parametrize(
        ("frame", "api"),
        [
            ({"type": "message_start", "message": {"role": "assistant", "content": []}}, "Anthropic Messages"),
            ({"type": "content_block_start", "index": 0, "content_block": {}}, "Anthropic Messages"),
            ({"type": "content_block_delta", "index": 0, "delta": {"text": "x"}}, "Anthropic Messages"),
            ({"type": "content_block_stop", "index": 0}, "Anthropic Messages"),
            ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}, "Anthropic Messages"),
            ({"type": "message_stop"}, "Anthropic Messages"),
            ({"type": "response.created", "response": {"error": None}}, "OpenAI Responses"),
            ({"type": "response.output_text.delta", "delta": "x"}, "OpenAI Responses"),
            ({"type": "response.completed", "response": {"error": None}}, "OpenAI Responses"),
            ({"candidates": [{"content": {"parts": [{"text": "x"}]}}]}, "Gemini"),
            ({"promptFeedback": {"blockReason": "SAFETY"}}, "Gemini"),
            ({"model": "m", "message": {"role": "assistant", "content": "x"}, "done": False}, "Ollama"),
            ({"model": "m", "response": "x", "done": False}, "Ollama"),
            ({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "error": None}, "Ollama"),
        ],
    )
    def test_frames_of_other_apis_are_named(self, frame: dict[str, Any], api: str) -> None:
        """Whoever points the chat decoder at another API learns which one, and how to read it."""
        with pytest.raises(MalformedChunkError, match=f'{api}.*decode="events"'):
            decode(json.dumps(frame), str(frame.get("type", "message")))

    def test_choices_make_it_a_chat_chunk(self) -> None:
        """Extra keys that other APIs use do no harm beside choices."""
        frame = {**json.loads(HELLO), "candidates": [1], "done": False, "message": {}, "type": "message_delta"}
        assert decode(json.dumps(frame)) == frame


class TestDecodeLast:
    """An unfinished last block: kinder, but never half a chunk (B068)."""

    def test_whole_json_is_delivered(self) -> None:
        """A server may forget the last blank line; the finish reason counts."""
        decoder = ChatDecoder()
        chunk = decoder.decode_last(event(STOP))
        assert chunk == json.loads(STOP)
        assert decoder.finished

    def test_a_truncated_chunk_is_never_delivered(self) -> None:
        """Wherever it was cut, nothing comes out, nothing is raised, nothing counts as an end."""
        for length in range(len(STOP)):
            decoder = ChatDecoder()
            assert decoder.decode_last(event(STOP[:length])) is None
            assert not decoder.done
            assert not decoder.finished

    @pytest.mark.parametrize("data", ["[DONE]", " [DONE]\n"])
    def test_the_end_marker_counts(self, data: str) -> None:
        """`[DONE]` without its blank line still says that the stream is complete."""
        decoder = ChatDecoder()
        assert decoder.decode_last(event(data)) is None
        assert decoder.done

    @pytest.mark.parametrize("data", ["[DON", "17", '{"type":"message_stop"}', "<html>"])
    def test_anything_else_is_dropped(self, data: str) -> None:
        """Fragments and foreign frames at the very end are no error."""
        assert ChatDecoder().decode_last(event(data)) is None

    @pytest.mark.parametrize("data", ['{"error":{"message":"m"}}', '{"detail":"m"}'])
    def test_error_frames_are_still_raised(self, data: str) -> None:
        """A server that dies while reporting is heard."""
        with pytest.raises(InStreamError, match="m"):
            ChatDecoder().decode_last(event(data))


def test_a_stream_from_bytes_to_the_end() -> None:
    """Comments, pings, chunks, usage and the end marker of an ordinary stream."""
    usage = '{"choices":[],"usage":{"total_tokens":3}}'
    stream = f": PROCESSING\n\ndata: {HELLO}\n\ndata: {STOP}\n\ndata: {usage}\n\ndata: [DONE]\n\ndata: late\n\n".encode()
    client, decoder = EventClient(), ChatDecoder()
    chunks = [decoder.decode(made) for made in client.feed(stream)]
    assert chunks == [json.loads(HELLO), json.loads(STOP), json.loads(usage), None, None]
    assert (decoder.done, decoder.finished, client.comments) == (True, True, 1)
