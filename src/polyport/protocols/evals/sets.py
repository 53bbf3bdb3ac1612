"""Eval sets and their cases over HTTP (spec rest 10.1): list, make, read, change, delete, and cases from stored sessions."""

from typing import Any

from msgspec import structs

from polyport.codec import Data
from polyport.data.session import SessionKey
from polyport.errors import BadRequest, NotFound
from polyport.evals.cases import EvalCase, EvalSet, EvalSetShape, SessionInput, checked_case, checked_set, set_shape
from polyport.evals.recording import turns_of
from polyport.ports.stores import SessionStore
from polyport.protocols.answers import send_json
from polyport.protocols.evals.place import DEV, OLD, Place
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route

SETS = ("eval-sets", "eval_sets")
CASES = ("eval-cases", "evals")


class NewSet(Data, frozen=True, kw_only=True):
    """The body that makes a set."""

    eval_set: EvalSet


class AddSession(Data, frozen=True, kw_only=True):
    """The body that makes a case of a session."""

    eval_id: str
    session_id: str
    user_id: str


class SetIds(Data, frozen=True, kw_only=True, omit_defaults=False):
    eval_set_ids: list[str]


class SetRoutes:
    def __init__(self, place: Place, sessions: SessionStore) -> None:
        self._place = place
        self._sessions = sessions

    def routes(self) -> list[Route]:
        local = self._place.local
        found: list[Route] = []
        for base in (DEV, OLD):
            new, old = f"{base}/eval-sets", f"{base}/eval_sets"
            found += [
                Route("GET", new, self.list_ids, admin=True, summary="The eval sets of an app", returns=SetIds),
                Route("GET", old, self.names, admin=True, summary="The eval sets of an app", returns=list[str]),
                local("POST", f"{old}/{{set}}", self.create_empty, "Make an empty eval set"),
            ]
            for sets in SETS:
                path = f"{base}/{sets}"
                found += [
                    local("POST", path, self.create, "Make an eval set", body=NewSet, returns=EvalSetShape),
                    Route("GET", f"{path}/{{set}}", self.get, admin=True, summary="An eval set", returns=EvalSetShape),
                    local("DELETE", f"{path}/{{set}}", self.delete, "Delete an eval set"),
                    *[route for cases in CASES for route in self._case_routes(f"{path}/{{set}}/{cases}")],
                    *[
                        local(
                            "POST",
                            f"{path}/{{set}}/{verb}",
                            self.add_session,
                            "Make a case of a session",
                            body=AddSession,
                        )
                        for verb in ("add-session", "add_session")
                    ],
                ]
        return found

    def _case_routes(self, path: str) -> list[Route]:
        local, one = self._place.local, path + "/{case}"
        return [
            Route("GET", path, self.case_ids, admin=True, summary="The cases of an eval set", returns=list[str]),
            Route("GET", one, self.get_case, admin=True, summary="A case", returns=EvalCase),
            local("PUT", one, self.put_case, "Replace a case", body=EvalCase),
            local("DELETE", one, self.delete_case, "Delete a case"),
        ]

    async def list_ids(self, request: Request, send: Send) -> None:
        await send_json(send, SetIds(eval_set_ids=await self._ids(request)))

    async def names(self, request: Request, send: Send) -> None:
        await send_json(send, await self._ids(request))

    async def _ids(self, request: Request) -> Any:
        return await self._place.read(self._place.folder(request).set_ids)

    async def create(self, request: Request, send: Send) -> None:
        """BadRequest for a bad id, one that is taken, or cases that are none."""
        body = await request.json(NewSet, unknown="drop")
        await send_json(send, set_shape(await self._made(request, checked_set(body.eval_set))))

    async def create_empty(self, request: Request, send: Send) -> None:
        await self._made(request, EvalSet(eval_set_id=request.params["set"]))
        await send_json(send, None)

    async def _made(self, request: Request, given: EvalSet) -> EvalSet:
        await self._place.known(request)
        made = structs.replace(
            given,
            name=given.name or given.eval_set_id,
            creation_timestamp=given.creation_timestamp or self._place.subject.seams.clock(),
        )
        await self._place.change(self._place.folder(request).create_set, made)
        return made

    async def get(self, request: Request, send: Send) -> None:
        found = await self._place.read(self._place.folder(request).eval_set, request.params["set"])
        await send_json(send, set_shape(found))

    async def delete(self, request: Request, send: Send) -> None:
        await self._place.change(self._place.folder(request).delete_set, request.params["set"])
        await send_json(send, None)

    async def case_ids(self, request: Request, send: Send) -> None:
        """400 for a set that is not there."""
        try:
            found = await self._place.read(self._place.folder(request).eval_set, request.params["set"])
        except NotFound as error:
            raise BadRequest(str(error)) from None
        await send_json(send, sorted(case.eval_id for case in found.eval_cases))

    async def get_case(self, request: Request, send: Send) -> None:
        names = request.params
        await send_json(send, await self._place.read(self._place.folder(request).case, names["set"], names["case"]))

    async def put_case(self, request: Request, send: Send) -> None:
        case = checked_case(await request.json(EvalCase, unknown="drop"))
        if case.eval_id != request.params["case"]:
            raise BadRequest("Eval id in EvalCase should match the eval id in the API route.", "evalId")
        folder, name = self._place.folder(request), request.params["set"]
        await self._place.change(lambda: folder.put_case(name, case, new=False))
        await send_json(send, None)

    async def delete_case(self, request: Request, send: Send) -> None:
        names = request.params
        await self._place.change(self._place.folder(request).delete_case, names["set"], names["case"])
        await send_json(send, None)

    async def add_session(self, request: Request, send: Send) -> None:
        """NotFound for the set or the session; BadRequest for an id that is taken. The case begins with an empty state."""
        body = await request.json(AddSession, unknown="drop")
        folder, set_id, app = self._place.folder(request), request.params["set"], await self._place.known(request)
        await request.act_as(body.user_id, app)  # to administer is not to read what users said
        await self._place.read(folder.eval_set, set_id)
        session = await self._sessions.get(SessionKey(app, body.user_id, body.session_id))
        case = checked_case(
            EvalCase(
                eval_id=body.eval_id,
                conversation=turns_of(session),
                session_input=SessionInput(app_name=app, user_id=body.user_id),
                creation_timestamp=self._place.subject.seams.clock(),
            )
        )
        await self._place.change(lambda: folder.put_case(set_id, case, new=True))
        await send_json(send, None)
