"""The shipped rules as the generator knows them, for tests."""
import pathlib
import sys


class RuleSet:
    """Groups, alerts and values of configs/rules, with other values where `settings` says so."""

    def __init__(self, source, settings=()):
        sys.dont_write_bytecode = True
        folder = str(pathlib.Path(source) / "configs/rules")
        if folder not in sys.path:
            sys.path.insert(0, folder)
        import alerts  # noqa: E402
        import generate  # noqa: E402
        import values_file  # noqa: E402
        self.generator, self.files = generate, values_file
        self.values = values_file.load(pathlib.Path(folder) / "values.yaml")
        for setting in settings:
            self.values = generate.set_value(self.values, setting)
        generate.check_values(self.values)
        self.names = [alert.name for alert in alerts.ALL]
        windows = generate.windows_of(self.values)
        # Switched off or not.
        self.expressions = {alert.name: alert.expression(self.values["alerts"][alert.name],
                                                         self.values, windows)
                            for alert in alerts.ALL}
        self.texts = {alert.name: (alert.summary, alert.description) for alert in alerts.ALL}
        self.recordings = {name: expr for _, recorded, _ in generate.groups_of(self.values)
                           for name, expr, _ in recorded}

    def seconds(self, text):
        return self.files.seconds(text)

    def is_on(self, name):
        return self.values["alerts"][name]["enabled"]
