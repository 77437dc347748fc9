"""The routes of the change list and of slices."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from whence.project import export_changes
from whence.ui.explorer import Explorer
from whence.ui.first_order import first_order
from whence.ui.requests import Answer, Changes, Marking, Name, NewSlice
from whence.ui.work import add_marking, change_list, compare_slices, save_slice, slices


def add_work_routes(app: FastAPI, explorer: Explorer) -> None:
    """Add the routes; every change is answered by the whole list."""
    _changes(app, explorer)
    _slices(app, explorer)

    @app.get("/api/export")
    def export() -> FileResponse:
        """The corrected training set and a script that retrains, as a zip archive."""
        with tempfile.TemporaryDirectory() as folder:
            export_changes(explorer.project, folder)
            handle, archive = tempfile.mkstemp(suffix=".zip")
            os.close(handle)
            shutil.make_archive(archive.removesuffix(".zip"), "zip", folder)
        name = f"{explorer.project.path.stem}-changes.zip"
        return FileResponse(
            archive,
            media_type="application/zip",
            filename=name,
            background=BackgroundTask(os.unlink, archive),
        )

    @app.post("/api/whatif/first")
    def first(changes: Changes) -> Answer:
        """What changes for all tests, predicted to first order by effects: at once, nothing is re-solved."""
        return first_order(explorer, changes)


def _changes(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/changes")
    def changes() -> Answer:
        """The change list: entries, and what they come to."""
        return change_list(explorer)

    @app.post("/api/changes")
    def add(marking: Marking) -> Answer:
        """Keep, flag, remove or relabel training samples, one by one or as a group."""
        add_marking(explorer, marking)
        return change_list(explorer)

    @app.post("/api/changes/undo")
    def undo() -> Answer:
        """Take back the last change of the list."""
        explorer.project.work.undo()
        return change_list(explorer)

    @app.post("/api/changes/clear")
    def clear() -> Answer:
        """Remove all entries; undo brings them back."""
        explorer.project.work.clear()
        return change_list(explorer)

    @app.post("/api/changes/{entry}/remove")
    def remove(entry: int) -> Answer:
        """Remove an entry by its id."""
        explorer.project.work.remove(entry)
        return change_list(explorer)


def _slices(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/api/slices")
    def all_slices() -> Answer:
        """The named sets of training samples and of tests."""
        return slices(explorer)

    @app.post("/api/slices")
    def save(new: NewSlice) -> Answer:
        """Name a set of samples, or what filters of a list leave; the same name replaces."""
        save_slice(explorer, new)
        return slices(explorer)

    @app.get("/api/slices/compare")
    def compare(names: Annotated[list[Name], Query()]) -> Answer:
        """Compare slices: accuracy, doubt about labels, evidence and labels."""
        return compare_slices(explorer, names)

    @app.post("/api/slices/{name}/delete")
    def delete(name: Name) -> Answer:
        """Delete a slice; its samples stay."""
        explorer.project.work.delete_slice(name)
        return slices(explorer)
