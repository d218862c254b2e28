"""Which page is at which path."""

from terminalbench.dashboard.frame import Route
from terminalbench.dashboard.pages.batch import batch_page
from terminalbench.dashboard.pages.compare import choose_page, compare_page
from terminalbench.dashboard.pages.experiments import experiment_page, experiments_page
from terminalbench.dashboard.pages.files import batch_file, file_page, raw_file
from terminalbench.dashboard.pages.home import home_page
from terminalbench.dashboard.pages.side import side_page
from terminalbench.dashboard.pages.trial import raw_step, trial_page
from terminalbench.dashboard.pages.trials import trials_page

_PAIR = "side-by-side/{slug}/{number}/{job}/{trial}/{slug2}/{number2}/{job2}/{trial2}/"
_TRIAL = "batches/{slug}/{number}/trials/{job}/{trial}/"

ROUTES = (
    Route("", home_page),
    Route("experiments/", experiments_page),
    Route("experiments/{slug}/", experiment_page),
    Route("trials/", trials_page),
    Route("batches/{slug}/{number}/", batch_page),
    Route("batches/{slug}/{number}/files/{path...}", batch_file),
    Route(_TRIAL, trial_page),
    Route(f"{_TRIAL}steps/{{document}}/{{page}}/", trial_page),
    Route(f"{_TRIAL}files/{{path...}}", file_page),
    Route(f"{_TRIAL}raw/{{path...}}", raw_file),
    Route(f"{_TRIAL}step-text/{{path...}}", raw_step),
    Route("compare/", choose_page),
    Route("compare/{slug}/{number}/{profile}/{slug2}/{number2}/{profile2}/", compare_page),
    Route(_PAIR, side_page),
    Route(f"{_PAIR}{{page}}/", side_page),
)
