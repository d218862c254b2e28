"""The table of commands, by what a person wants to do."""

from terminalbench.cli.lazy import CommandEntry, Section

SECTIONS = (
    Section(
        "Write an experiment",
        (
            CommandEntry("init", "terminalbench.cli.init", "Write a commented experiment to start from."),
            CommandEntry(
                "validate", "terminalbench.cli.validate", "Check experiment files; report every problem at once."
            ),
            CommandEntry("plan", "terminalbench.cli.plan", "Show exactly what would run, before anything runs."),
            CommandEntry("diff", "terminalbench.cli.diff", "Show what differs between two profiles."),
            CommandEntry("migrate", "terminalbench.cli.migrate", "Convert an older experiment file to version 2."),
            CommandEntry("schema", "terminalbench.cli.schema", "Print the JSON Schema of the experiment file."),
        ),
    ),
    Section(
        "Run it",
        (
            CommandEntry(
                "check", "terminalbench.cli.check", "Prove tasks, environment, agents and models before a run."
            ),
            CommandEntry(
                "run", "terminalbench.cli.run", "Run an experiment: one Harbor job per profile, in a new batch."
            ),
            CommandEntry(
                "resume", "terminalbench.cli.resume", "Go on with a batch: finish it, add to it, retry errors."
            ),
            CommandEntry("watch", "terminalbench.cli.watch", "Watch a batch live, from any terminal."),
            CommandEntry("status", "terminalbench.cli.status", "Show what runs now, and how far it is."),
            CommandEntry("ctl", "terminalbench.cli.ctl", "Steer a live run: pause, resume, requeue, cancel."),
            CommandEntry("kill", "terminalbench.cli.kill", "End a running batch, and verify it."),
            CommandEntry("mirror", "terminalbench.cli.mirror", "Copy session folders out of every trial again."),
        ),
    ),
    Section(
        "Look at results",
        (
            CommandEntry(
                "view", "terminalbench.cli.view", "Show the results in a browser, live; or export them as a site."
            ),
            CommandEntry("list", "terminalbench.cli.list", "List the batches, newest first."),
            CommandEntry(
                "compare", "terminalbench.cli.compare", "Say which profile is better, by how much, and how sure it is."
            ),
            CommandEntry("show", "terminalbench.cli.show", "Show one trial: what it was told, did, and how it ended."),
            CommandEntry(
                "analyze", "terminalbench.cli.analyze", "Find out what each trial did, and write tables of it."
            ),
            CommandEntry(
                "errors", "terminalbench.cli.errors", "Show why trials did not pass, and what the others did."
            ),
            CommandEntry("label", "terminalbench.cli.label", "Say yourself what a trial shows."),
            CommandEntry("report", "terminalbench.cli.report", "Write the report of a batch: one HTML file, and text."),
            CommandEntry("query", "terminalbench.cli.query", "Ask the index a question in SQL."),
            CommandEntry("export", "terminalbench.cli.export", "Write trials as CSV, JSON, Parquet or JUnit XML."),
            CommandEntry("index", "terminalbench.cli.index", "Bring the index up to date with what is on disk."),
        ),
    ),
    Section(
        "Set up the shell",
        (CommandEntry("completion", "terminalbench.cli.completion", "Print the completion script of a shell."),),
    ),
)
