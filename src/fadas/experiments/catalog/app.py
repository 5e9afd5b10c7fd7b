"""The settings of a Flower app, which `fadas deploy init` writes into its pyproject.toml.

They are listed here, and not read from a signature, because an app's settings are flat. A test compares them with the
template and with what `AsyncStrategy.from_run_config` reads.
"""

from fadas.experiments.catalog.setting import Group, Setting

SECTION = "app"

_SUMMARY = (
    "Settings of a Flower app: `[tool.flwr.app.config]` in its `pyproject.toml`, or `flwr run -c`. "
    "Defaults are those that `fadas deploy init` writes."
)
_SETTINGS = (
    ("task", "string", '"digits"', 'The task: a name of `fadas list`, or your own as "module:Name".', '"mytask:blobs"'),
    ("task-*", "string, number or true or false", "", "An argument of the task.", "64"),
    ("num-partitions", "whole number", "8", "The number of parts of the data. As many as nodes.", "4"),
    ("num-server-rounds", "whole number", "30", "The number of server steps, each of `buffer` updates.", "250"),
    (
        "algorithm",
        "string",
        '"fadas-da"',
        'The method: a name of `fadas list`, or your own as "module:Name". The run is named after it.',
        '"fedbuff"',
    ),
    ("algorithm-eta", "number", "0.01", "The rate of a server step.", "0.003"),
    ("algorithm-*", "string, number or true or false", "", "A parameter of the method.", "8"),
    ("algorithm-combine", "string", "", "Replaces the method's combine rule.", '"private"'),
    ("algorithm-combine-*", "string, number or true or false", "", "An argument of that combine rule.", "1.0"),
    (
        "algorithm-optimizer",
        "string",
        "",
        "Replaces the server optimizer. Its arguments: `algorithm-optimizer-...`.",
        '"yogi"',
    ),
    (
        "algorithm-step-size",
        "string",
        "",
        "Replaces the step size. Its arguments: `algorithm-step-size-...`.",
        '"cosine"',
    ),
    (
        "algorithm-companion",
        "string",
        "",
        "Replaces the client side. Its arguments: `algorithm-companion-...`.",
        '"proximal"',
    ),
    ("concurrency", "whole number", "4", "M_c, the number of nodes that train at the same time.", "8"),
    ("buffer", "whole number", "2", "M, the number of updates per server step.", "4"),
    (
        "per-client",
        "whole number",
        "",
        "The most updates of one client in a step. Not set: 1 with robust combine rules, else no limit.",
        "1",
    ),
    ("lr", "number", "0.1", "The clients' learning rate.", "0.05"),
    ("epochs", "whole number", "2", "Passes over the client's data in a job.", "1"),
    ("batch-size", "whole number", "20", "Examples per batch.", "32"),
    ("weight-decay", "number", "0.0001", "Weight decay of local training.", "0.0"),
    ("local-steps", "whole number", "0", "Batches per job, instead of epochs. 0: epochs.", "10"),
    ("local-name", "string", '"sgd"', "The local optimizer.", '"momentum"'),
    ("local-*", "string, number or true or false", "", "Any other setting of `[local]`.", "5.0"),
    ("seed", "whole number", "1", "The seed of the initial model, of the choice of nodes, and of the task.", "2"),
    (
        "eval-every",
        "whole number or string",
        "1",
        'The interval between evaluations on the server: steps, or a text such as "50 updates" or "60 seconds".',
        '"50 updates"',
    ),
    (
        "metric",
        "string",
        "",
        "What the run is judged by: one of the metrics that the server measures. Not set: the accuracy if it is "
        "measured, else the first metric.",
        '"macro_f1"',
    ),
    ("better", "string", "", 'For a metric of your own: "higher" or "lower".', '"lower"'),
    ("format", "string", "", 'How the metric is shown: "percent" or "number".', '"percent"'),
    ("target", "number", "", "A value of the metric. The report says when the run first reached it.", "0.9"),
    (
        "deadline",
        "number",
        "600.0",
        "Seconds that a node may take for a job. Then the job is given up, and another node gets one.",
        "60.0",
    ),
    (
        "patience",
        "number",
        "300.0",
        "Seconds to wait while no node is connected. Then the run ends with an error.",
        "3600.0",
    ),
    (
        "folder",
        "string",
        "",
        "An absolute path, where the server keeps the run. A finished run is never continued: give each run a `folder` "
        "of its own. Not set: nothing is kept.",
        '"/srv/runs"',
    ),
    (
        "sinks",
        "string",
        "",
        "Trackers, with commas between them. They need a `folder`.",
        '"wandb,mlflow"',
    ),
    ("sinks-*", "string, number or true or false", "", "An argument of a tracker.", '"mine"'),
)
_EXAMPLES = {"task-*": "task-hidden", "algorithm-*": "algorithm-tau-c", "local-*": "local-clip"}
_EXAMPLES |= {"algorithm-combine-*": "algorithm-combine-clip", "sinks-*": "sinks-wandb-project"}


def app_settings() -> Group:
    """Return the settings of a Flower app."""
    settings = (
        Setting(f"{SECTION}.{key}", type, default, False, meaning, example)
        for key, type, default, meaning, example in _SETTINGS
    )
    return Group(SECTION, (), _SUMMARY, "", tuple(settings))


def example_key(setting: Setting) -> str:
    """Return the key that an example sets: an asterisk stands for the name of an argument."""
    return _EXAMPLES.get(setting.name, setting.name)
