"""The commands with their help lines, by what a person wants to do, and the modules that they are in.

A command is `NAME_command` of its module, with `_` for a hyphen; a module with one command may call it `command`.
A group is a module with all its commands, or a package with a module for each of its sections, in lower case.
"""

RARE = "Rarely needed"
"""The section whose commands are only named: nobody looks for them daily."""

SECTIONS = {
    "Every day": {
        "init": "Write a commented experiment to start from.",
        "check": "Prove tasks, environment, agents and models before a run.",
        "run": "Run an experiment: one Harbor job per profile, in a new batch.",
        "resume": "Continue a batch: finish it, add to it, retry errors.",
        "compare": "Say which profile is better, by how much, and how sure it is.",
        "show": "Show one trial: what it was told, did, and how it ended.",
        "view": "Show the results in a browser, live; or export them as a site.",
    },
    "Why it is so": {
        "errors": "Show why trials did not pass, and what the others did.",
        "analyze": "Find out what each trial did, and write tables of it.",
        "report": "Write the report of a batch: one HTML file, and text.",
        "list": "List the batches, newest first; or the trials of one.",
        "label": "Label a trial yourself.",
    },
    "Before a run": {
        "validate": "Check experiment files; report every problem at once.",
        "plan": "Show exactly what would run, before anything runs.",
        "diff": "Show what differs between two profiles.",
        "models": "Say whether models answer, how fast, and with tools or not.",
        "images": "Fetch the images of tasks, without Docker; see and remove them.",
    },
    "While it runs": {
        "watch": "Watch a batch live, from any terminal.",
        "status": "Show what runs now, and how far it is.",
        "ctl": "Steer a live run: pause, resume, requeue, cancel.",
        "kill": "End a running batch, and verify it.",
    },
    "Data in and out": {
        "import": "Make a batch of results that another tool wrote.",
        "export": "Write trials as CSV, JSON, Parquet or JUnit XML.",
        "query": "Ask the index a question in SQL.",
    },
    "Overnight": {
        "overnight": "Attempt a suite again and again, and have a report in the morning.",
        "iterate": "The same as overnight --workers 1.",
        "episodes": "Look into the episodes: every iteration of every night.",
    },
    "Memory": {
        "memory": "Read, write and veto the lessons that memory holds.",
    },
    "Training": {
        "trainer": "Try variants of a profile at night; promote what is proven better.",
    },
    "SWE-Bench Pro": {
        "swebench-pro": "Make tasks of SWE-Bench Pro, and evaluate patches on them.",
    },
    RARE: {
        "prune": "Remove old batches that nothing names.",
        "mirror": "Copy session folders out of every trial again.",
        "index": "Bring the index up to date with what is on disk.",
        "migrate": "Convert an older experiment file to version 2.",
        "schema": "Print the JSON Schema of the experiment file.",
        "completion": "Print the completion script of a shell.",
        "gym": "An older name of trainer gym.",
    },
}

MODULES = {
    name: module
    for module, names in {
        "experiment_file": ("validate", "diff", "migrate", "schema"),
        "run": ("resume",),
        "live_run": ("status", "ctl", "kill"),
        "report": ("view",),
        "trials": ("list", "show", "label"),
        "analyze": ("errors",),
        "overnight": ("iterate",),
        "tables": ("import", "export", "query"),
        "upkeep": ("prune", "mirror", "index"),
    }.items()
    for name in names
}
"""The module of a command that is not called as it."""

GROUPS = {
    "episodes": {
        "Look": {
            "list": "List episodes, newest first.",
            "show": "Show one episode and its tasks.",
            "baseline": "Say what an episode is measured against, and how it compares.",
            "export": "Write episodes as JSON lines or CSV.",
        },
    },
    "gym": {
        "Look": {
            "list": "List the environments of the project.",
            "show": "Show one environment, its split, and the looks at its holdout.",
        },
        "Decide": {
            "split": "Give each family of an environment its part.",
        },
    },
    "images": {
        "Take in": {
            "pull": "Fetch images from their registries.",
            "import": "Import an image from an archive or a folder.",
        },
        "Look": {
            "list": "List the images of this machine.",
            "show": "Show one image: its layers, settings and names.",
        },
        "Remove": {
            "prune": "Remove images that are not used.",
        },
    },
    "memory": {
        "Look": {
            "list": "List lessons, newest first.",
            "show": "Show one lesson, what supports it, and its history.",
            "search": "Find lessons by words; or those that a task would get.",
            "stats": "Count what memory holds, and what lessons gain.",
            "log": "Show the operations, newest first.",
            "check": "Check the log, and repair it.",
        },
        "Learn": {
            "reflect": "Learn from a batch: by rules, or by a chat model.",
            "learn": "Learn what lessons are worth from trials with and without them.",
        },
        "Decide": {
            "add": "Add a lesson.",
            "edit": "Change a lesson.",
            "approve": "Put a quarantined, retired or candidate lesson into use.",
            "retire": "Take a lesson out of use.",
            "merge": "Merge lessons into one.",
        },
        "Take along": {
            "export": "Write lessons as JSON lines.",
            "import": "Add the lessons of an export, as candidates.",
        },
    },
    "models": {
        "Look": {
            "check": "Ask models something short, and say how they answer.",
        },
    },
    "trainer": {
        "Run": {
            "init": "Write a plan to start from; it needs no key.",
            "plan": "Say what gains a plan can show, in how many nights, at which price.",
            "run": "Run the nights of a training plan.",
            "holdout": "Measure the champion on the sealed tasks; each look counts.",
        },
        "Look": {
            "status": "Show where a training stands.",
            "history": "Show every comparison, rejected ones as well.",
            "diff": "Show how a profile differs from its parents.",
            "report": "Write the report of a training.",
        },
        "Decide": {
            "promote": "Make a profile champion yourself.",
            "rollback": "Bring back the champion before this one.",
        },
        "Environments": {
            "gym": "Look into what profiles are trained on, and split their tasks.",
        },
    },
    "swebench-pro": {
        "Instances": {
            "tasks": "Make Harbor tasks of a dataset file, or of Hugging Face.",
            "list-instances": "Count instances by language and repository.",
        },
        "Experiments": {
            "experiment": "Run arms on instances, and continue an experiment.",
        },
        "Results": {
            "evaluate": "Judge patches, also from other tools, on the tests of their instances.",
            "analyze-errors": "Say why runs did not resolve their instance.",
            "visualize": "Draw pass rates, cost, tokens, times, outcomes and effects.",
            "import": "Convert results of AtomicGuard to the format of experiment.",
            "project": "Write results, traces and predictions again, from batches.",
        },
    },
}
"""The groups among them, with their own commands."""
